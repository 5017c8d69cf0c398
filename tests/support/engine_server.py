"""An engine package driven from another interpreter: run as a script there, used as a module here.

Requests and answers are JSON lines. Two engines of each kind are kept and given out in turn, for
building one takes seconds: what "another engine" gives is really another one's.
"""

import contextlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

KEPT = 2


class RemoteEngine:
    """Calls go to the engine of that number; a ValueError there is one here."""

    def __init__(self, server: "EngineServer", number: int) -> None:
        self._server, self._number = server, number

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._server.ask("call", self._number, name, list(arguments))


class EngineServer:
    """The client's end. `Engine`, `SPACE` and `load_weights` are those of the package."""

    def __init__(
        self, python: str, root: Path, package: str, imports: tuple[str, ...], env: dict[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            [python, __file__, str(root), package, *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            text=True,
        )
        self.SPACE = self.ask("space")

    def load_weights(self, folder: str) -> str:
        return folder

    def Engine(self, weights: str, knobs: dict[str, Any], precision: str) -> RemoteEngine:
        return RemoteEngine(self, self.ask("engine", weights, knobs, precision))

    def ask(self, *question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the engine's process ended with {self._process.wait()}"
        answer = json.loads(line)
        if "refused" in answer:
            raise ValueError(answer["refused"])
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class _Engines:
    def __init__(self, package: Any) -> None:
        self._package = package
        self._engines: list[Any] = []
        self._kinds: dict[str, list[int]] = {}
        self._turns: dict[str, int] = {}

    def space(self) -> Any:
        return self._package.SPACE

    def engine(self, weights: str, knobs: dict[str, Any], precision: str) -> int:
        kind = json.dumps([weights, knobs, precision], sort_keys=True)
        numbers = self._kinds.setdefault(kind, [])
        if len(numbers) < KEPT:
            mapped = self._package.load_weights(weights)
            self._engines.append(self._package.Engine(mapped, knobs, precision))
            numbers.append(len(self._engines) - 1)
            return numbers[-1]
        self._turns[kind] = self._turns.get(kind, 0) + 1
        number = numbers[self._turns[kind] % KEPT]
        while self._engines[number].busy():
            self._engines[number].step()
        self._engines[number].reset()
        return number

    def call(self, number: int, name: str, arguments: list[Any]) -> Any:
        return getattr(self._engines[number], name)(*arguments)


def _serve(root: str, package: str, imports: list[str]) -> None:
    sys.path.insert(0, root)
    for name in imports:
        importlib.import_module(name)
    answers, sys.stdout = sys.stdout, sys.stderr
    engines = _Engines(importlib.import_module(package))
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            answer = {"value": getattr(engines, what)(*arguments)}
        except ValueError as error:
            answer = {"refused": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], sys.argv[3:])
