"""One engine behind a channel: loads a patch, then serves frames until the host has enough.

It takes requests as they come between steps and sends every step's outputs as one frame. It never
looks at a clock.
"""

from __future__ import annotations

import base64
import gc
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import compiled
from .channel import Channel
from .engagement import Engaged, arm, loaded
from .swap import NotHot, apply_changes
from .tree import Tree, error_line, frozen, prepare_steps, purge

_LIBRARY_FOLDER = "lib"  # in the scratch folder, where a trial works
FOREIGN = (Exception, SystemExit, KeyboardInterrupt)  # what engine code may end a call with
Frame = dict[str, Any]


@dataclass
class Built:
    """An engine with what it was built from. `engine` is None where none is built yet."""

    name: str
    tree: Tree
    weights_folder: str
    precision: str = "bfloat16"
    knobs: dict[str, Any] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    engine: Any = None
    ran_at_build: frozenset[tuple[str, str]] = frozenset()
    prepared: tuple[str, ...] = ()
    # None: the tree's modules aren't imported before `load`.
    ran_at_import: frozenset[tuple[str, str]] | None = None
    compiled: str = ""  # archive of what was compiled for this digest before; it may not exist
    made: bytes | None = None  # what was compiled here, once packed

    def build(self) -> None:
        """Import the package, map the weights, make the engine. Raises what the engine raises."""
        package = importlib.import_module(self.name)
        self._set_library_paths()
        own = compiled.folder_of(package)
        if own is not None and compiled.restore(self.compiled, own):
            self.made = b""  # nothing that isn't in the archive
        weights = package.load_weights(self.weights_folder)
        self.engine = package.Engine(weights, self.knobs, self.precision)

    def rehearse(self) -> None:
        """Have the engine do what only warms it, where it has such a thing."""
        rehearse = getattr(self.engine, "rehearse", None)
        if rehearse is not None:
            rehearse()

    def pack_compiled(self) -> bytes:
        """What building and serving compiled so far, as an archive; empty: nothing new."""
        if self.made is None:
            own = compiled.folder_of(importlib.import_module(self.name))
            self.made = b"" if own is None else compiled.pack(own)
        return self.made

    def prepare(self) -> None:
        """Run the preparation steps that are new. Raises NotHot if one belongs before old ones."""
        steps = prepare_steps(self.name, self.tree.sources)
        new = [s for s in steps if s not in self.prepared]
        if self.prepared and new and new[0] < self.prepared[-1]:
            raise NotHot(f"adds {new[0]} before {self.prepared[-1]}")
        for path in new:
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            step = getattr(module, "prepare", None)
            if step is not None:
                step(self.engine)
        self.prepared = tuple(steps)

    def build_and_prepare(self) -> None:
        """Both, one after the other."""
        self.build()
        self.prepare()

    def forget(self) -> None:
        """Back to no engine and no imported package, as in a process that never had them."""
        self.engine = None
        self.prepared, self.ran_at_build = (), frozenset()
        purge(self.name)

    def follow(self, files: dict[str, str | None], knobs: dict[str, Any]) -> None:
        """Take another tree and knobs, where no engine is built yet. Raises NotHot.

        Modules that were imported early can't be imported again: they follow in place.
        """
        if self.ran_at_import is None:
            self.tree.overlay(files)
            self.tree.install()
        else:
            apply_changes(self.tree, files, self.ran_at_import, built=False)
            for knob in importlib.import_module(self.name).SPACE:
                name, default = knob["name"], knob["default"]
                if knob["rung"] == "process" and self.knobs.get(name, default) != knobs.get(
                    name, default
                ):
                    raise NotHot(f"sets {name}, which is read when a process starts")
        self.knobs = knobs

    def knob_changes(self, knobs: dict[str, Any]) -> dict[str, Any]:
        """What `knobs` (absent ones at their defaults) would change. Raises NotHot if not live."""
        space = importlib.import_module(self.name).SPACE
        defaults = {knob["name"]: knob["default"] for knob in space}
        rungs = {knob["name"]: knob["rung"] for knob in space}
        now, then = {**defaults, **self.knobs}, {**defaults, **knobs}
        changes = {name: value for name, value in then.items() if now.get(name, self) != value}
        for name in changes:
            if rungs.get(name, "live") != "live":
                raise NotHot(f"sets {name}, which is read when the engine is built")
        return changes

    def space(self) -> Any:
        return frozen(importlib.import_module(self.name).SPACE)

    def add_libraries(self, libraries: dict[str, str]) -> None:
        """Write libraries (base64) to scratch and tell the engine's `native` module."""
        folder = os.path.abspath(_LIBRARY_FOLDER)
        os.makedirs(folder, exist_ok=True)
        for name, content in libraries.items():
            path = f"{folder}/lib{name}.so"
            with open(path, "wb") as file:
                file.write(base64.b64decode(content))
            self.libraries[name] = path
        self._set_library_paths()

    def _set_library_paths(self) -> None:
        if self.libraries and f"{self.name}/native.py" in self.tree.sources:
            importlib.import_module(f"{self.name}.native").PATHS.update(self.libraries)


class Runner:
    """Serves one trial. An engine that exists follows changes; else it is built on `load`."""

    def __init__(self, channel: Channel, built: Built) -> None:
        self._channel = channel
        self._built = built
        self._armed: list[str] = []
        self._ops: dict[str, Callable[[Frame], Any]] = {
            "load": self._load,
            "arm": self._arm,
            "loaded": self._loaded,
            "prepare": self._prepare,
            "reset": self._reset,
            "score": self._score,
            "counters": self._counters,
            "set_knobs": self._set_knobs,
            "compiled": lambda _: base64.b64encode(self._built.pack_compiled()).decode(),
            "space": lambda _: self._built.space(),
        }

    def serve(self) -> None:
        """Until the host says `exit` or is gone (HostGone)."""
        while True:
            engine = self._built.engine
            busy = engine is not None and engine.busy()
            frame = self._channel.receive(wait=not busy)
            if frame is not None:
                if frame["op"] == "exit":
                    return
                self._answer(frame)
            elif busy:
                self._step()

    def _step(self) -> None:
        try:
            outputs = self._built.engine.step()
        except FOREIGN as error:
            self._end("error", error)
        except Engaged as error:
            self._end("engaged", error)
        else:
            self._channel.send({"out": outputs})

    def _end(self, kind: str, error: BaseException) -> None:
        """A step that raised leaves the engine in no known state: say so and leave."""
        line = error_line(error, self._built.tree)
        self._channel.send({"re": "step", "ok": False, "kind": kind, "error": line})
        os._exit(1)

    def _answer(self, frame: Frame) -> None:
        op = frame["op"]
        if op == "submit":
            for request in frame["requests"]:
                self._submit(request)
            return
        reply: Frame = {"re": op, "ok": True}
        try:
            reply["value"] = self._ops[op](frame)
        except NotHot as error:
            reply |= {"ok": False, "kind": "not_hot", "error": str(error)}
        except Engaged as error:
            reply |= {"ok": False, "kind": "engaged", "error": str(error)}
        except FOREIGN as error:
            reply |= {"ok": False, "kind": "error", "error": error_line(error, self._built.tree)}
        self._channel.send(reply)

    def _submit(self, request: Frame) -> None:
        try:
            self._built.engine.submit(request)
        except FOREIGN as error:
            line = error_line(error, self._built.tree)
            self._channel.send({"failed": request["id"], "kind": "error", "error": line})
        except Engaged as error:
            self._channel.send({"failed": request["id"], "kind": "engaged", "error": str(error)})

    def _load(self, frame: Frame) -> str:
        """Load a patch: changed files by path, the side's knobs, new libraries. Says the rung."""
        built = self._built
        files: dict[str, str | None] = frame.get("files", {})
        knobs: dict[str, Any] = frame.get("knobs", {})
        libraries: dict[str, str] = frame.get("libraries", {})
        if built.engine is None:
            if not frame.get("same_compiled", False):
                built.compiled = ""
            built.follow(files, knobs)
            built.add_libraries(libraries)
            importlib.import_module(built.name)
            self._arm_early(frame)
            built.build()
            built.rehearse()
            return "warm"
        for name in libraries:
            if name in built.libraries:
                raise NotHot(f"replaces lib{name}.so, which is in use")
        changes = built.knob_changes(knobs)
        if libraries:
            built.add_libraries(libraries)
        apply_changes(built.tree, files, built.ran_at_build)
        self._arm_early(frame)
        if changes:
            built.engine.set_knobs(changes)
            built.knobs = dict(knobs)
        return "hot"

    def _arm_early(self, frame: Frame) -> None:
        """Make functions raise before the engine is built: does building need them?"""
        names = frame.get("arm", [])
        if names:
            for name in names:
                importlib.import_module(
                    name.partition(":")[0].removesuffix(".py").replace("/", ".")
                )
            arm(self._built.tree, names)

    def _arm(self, frame: Frame) -> list[str]:
        return arm(self._built.tree, frame["functions"], block_imports=True)

    def _loaded(self, frame: Frame) -> bool:
        return loaded(frame["functions"])

    def _prepare(self, _: Frame) -> list[str]:
        before = self._built.prepared
        self._built.prepare()
        # An engine forked warm has its objects out of the collector's sight; so has one built here.
        gc.freeze()
        return [step for step in self._built.prepared if step not in before]

    def _reset(self, _: Frame) -> None:
        self._built.engine.reset()

    def _score(self, frame: Frame) -> Any:
        return frozen(self._built.engine.score(frame["sequences"]))

    def _counters(self, _: Frame) -> Any:
        return frozen(self._built.engine.counters())

    def _set_knobs(self, frame: Frame) -> None:
        self._built.engine.set_knobs(frame["knobs"])


def record_calls(root: str, work: Callable[[], None]) -> frozenset[tuple[str, str]]:
    """Do `work` and return (file name, qualified name) of every function below `root` it called."""
    seen: set[tuple[str, str]] = set()
    prefix = root.rstrip("/") + "/"

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return frozenset(seen)
