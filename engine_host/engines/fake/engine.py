"""The fake engine behind the protocol of docs/ENGINE.md."""

from typing import Any

from .model import Model, extend, pick
from .scheduler import Scheduler, Sequence
from .space import DEFAULTS, Knob, check
from .weights import VOCAB, Weights


class Engine:
    def __init__(
        self, weights: Weights, knobs: dict[str, Knob], precision: str = "bfloat16"
    ) -> None:
        check(knobs, live=False)
        values: dict[str, Any] = {**DEFAULTS, **knobs}
        self.precision = precision
        self.context = values["context"]
        self.model = Model(weights, values["rounds"])
        self.scheduler = Scheduler(values["max_batch"])
        self.cached: set[bytes] = set()
        self.totals = dict.fromkeys(
            ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "steps", "preemptions"), 0
        )

    def set_knobs(self, knobs: dict[str, Knob]) -> None:
        check(knobs, live=True)
        if "rounds" in knobs:
            self.model.rounds = int(knobs["rounds"])
        if "max_batch" in knobs:
            self.scheduler.max_batch = int(knobs["max_batch"])

    def submit(self, request: dict[str, Any]) -> None:
        prompt, max_tokens = request["prompt"], request["max_tokens"]
        if not prompt or any(not 0 <= token < VOCAB for token in prompt):
            raise ValueError(f"request {request['id']}: a prompt needs tokens in 0..{VOCAB - 1}")
        if max_tokens < 1 or len(prompt) + max_tokens > self.context:
            raise ValueError(
                f"request {request['id']} is over the context of {self.context} tokens"
            )
        if any(s.id == request["id"] for s in (*self.scheduler.waiting, *self.scheduler.running)):
            raise ValueError(f"request {request['id']} is already being served")
        self.scheduler.add(
            Sequence(
                request["id"], list(prompt), max_tokens, logprobs=request.get("logprobs", False)
            )
        )

    def step(self) -> list[dict[str, Any]]:
        for sequence in self.scheduler.admit():
            self._prefill(sequence)
        batch = list(self.scheduler.running)
        made = self.model.decode([sequence.state for sequence in batch])
        self.totals["steps"] += 1
        return [self._advance(s, *one) for s, one in zip(batch, made, strict=True)]

    def busy(self) -> bool:
        return self.scheduler.busy()

    def reset(self) -> None:
        if self.busy():
            raise ValueError("an engine with unfinished requests can't be reset")
        self.cached.clear()

    def score(self, sequences: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._score(s["prompt"], s["output"]) for s in sequences]

    def counters(self) -> dict[str, int]:
        return dict(self.totals)

    def held(self) -> list[tuple[str, str]]:
        return []  # nothing is compiled

    def _prefill(self, sequence: Sequence) -> None:
        sequence.state = self.model.start(sequence.prompt)
        self.totals["prompt_tokens"] += len(sequence.prompt)
        if sequence.state in self.cached:
            self.totals["cached_prompt_tokens"] += len(sequence.prompt)
        self.cached.add(sequence.state)

    def _advance(self, sequence: Sequence, token: int, state: bytes) -> dict[str, Any]:
        sequence.state = state
        sequence.outputs += 1
        self.totals["output_tokens"] += 1
        finish = "length" if sequence.outputs == sequence.max_tokens else None
        if finish:
            self.scheduler.finish(sequence)
        return {
            "id": sequence.id,
            "tokens": [token],
            "finish": finish,
            "logprobs": [-0.1] if sequence.logprobs else None,
        }

    def _score(self, prompt: list[int], output: list[int]) -> dict[str, Any]:
        state = self.model.start(prompt)
        tops = []
        for token in output:
            tops.append(pick(state))
            state = extend(state, [token])
        right = [top == token for top, token in zip(tops, output, strict=True)]
        return {
            "logprobs": [-0.1 if ok else -5.0 for ok in right],
            "gaps": [0.0 if ok else 5.0 for ok in right],
            "top": tops,
        }
