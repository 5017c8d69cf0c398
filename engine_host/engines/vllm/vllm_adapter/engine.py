"""The engine: vLLM's own, stepped by whoever holds it; docs/ENGINE.md is the protocol."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import graphs
from .arguments import engine_arguments
from .early import SET_NUM_THREADS
from .requests import Totals, finish_of, logprobs_of, prompt_of, sampling_of, score_of, scoring_of
from .space import Knob, check_live, with_defaults
from .weights import Weights

from vllm.engine.arg_utils import EngineArgs  # isort: skip (after what sets its environment)
from vllm.model_executor.models import ModelRegistry  # isort: skip
from vllm.utils.torch_utils import set_random_seed  # isort: skip
from vllm.v1.engine.llm_engine import LLMEngine  # isort: skip

KEPT_TOKENS = 16  # that are computed to see that a graph from the archive works


class Engine:
    """Serves one model in one process."""

    def __init__(
        self, weights: Weights, knobs: dict[str, Knob], precision: str = "bfloat16"
    ) -> None:
        """Build vLLM's engine. Raises `ValueError` for a knob or precision that doesn't exist, and
        what vLLM raises for settings that it refuses.
        """
        values = with_defaults(knobs)
        arguments = engine_arguments(values, weights, precision)
        _register_architecture(weights.folder)
        SET_NUM_THREADS(values["threads"])
        # Eager means eager: vLLM would still have inductor compile what ranks log-probabilities.
        torch.compiler.set_stance("force_eager" if values["mode"] == "eager" else "default")
        self._weights = weights
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._core = self._engine.engine_core.engine_core
        self._scheduler = self._core.scheduler
        self._ids: set[int] = set()
        self._totals = Totals()
        self._room = arguments["max_num_batched_tokens"]
        self._scheduler._preempt_request = self._counting(self._scheduler._preempt_request)
        self._apply_live(values)
        gc.enable()

    def rehearse(self) -> None:
        """Run the model once, which compiles it; nothing that is computed is kept."""
        runner = self._worker().model_runner
        most = runner.max_num_tokens
        try:
            with graphs.only_kept():
                runner.max_num_tokens = min(KEPT_TOKENS, most)
                runner.warming_up_model()
        except graphs.NotKept:
            # Compilers look at the size of what they see first: it has to be vLLM's own.
            runner.max_num_tokens = most
            runner.warming_up_model()
        finally:
            runner.max_num_tokens = most
        set_random_seed(runner.model_config.seed)

    def set_knobs(self, knobs: dict[str, Knob]) -> None:
        """Change live knobs between steps. Raises `ValueError`, changing nothing, for any other."""
        check_live(knobs)
        self._apply_live(knobs)

    def submit(self, request: dict[str, Any]) -> None:
        """Queue a request. Raises `ValueError`, in one line, if it can't be served."""
        weights, number = self._weights, request["id"]
        if number in self._ids:
            raise ValueError(f"request {number} is already being served")
        prompt = prompt_of(request, weights.vocab, self.max_tokens_in_all)
        self._engine.add_request(str(number), prompt, sampling_of(request, weights.eos_ids))
        self._ids.add(number)
        self._totals.prompt_tokens += len(request["prompt"])

    @property
    def max_tokens_in_all(self) -> int:
        """Prompt and output tokens that a request may have: context, or what the cache holds."""
        config = self._engine.vllm_config
        blocks: int = config.cache_config.num_gpu_blocks - 1  # one stands for no block
        context: int = config.model_config.max_model_len
        return min(context, blocks * int(config.cache_config.block_size))

    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._ids)

    def step(self) -> list[dict[str, Any]]:
        """Compute one iteration; return what each request that advanced got."""
        if not self._ids:
            return []
        outputs = [self._output(found) for found in self._engine.step()]
        self._totals.steps += 1
        return [output for output in outputs if output is not None]

    def reset(self) -> None:
        """Forget every cached prefix. Raises `ValueError` while busy."""
        if self.busy():
            raise ValueError("an engine with unfinished requests can't be reset")
        if not self._engine.reset_prefix_cache():
            raise ValueError("vLLM didn't reset its prefix cache")

    def score(self, sequences: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Teacher-forced log-probabilities, gaps and argmaxes of each sequence's output.

        Raises `ValueError` while requests are being served, or for a sequence over the context.
        """
        if self.busy():
            raise ValueError("an engine with unfinished requests can't score")
        for number, sequence in enumerate(sequences):
            tokens = [*sequence["prompt"], *sequence["output"]]
            request = {"id": number, "prompt": tokens, "max_tokens": 1}
            prompt = prompt_of(request, self._weights.vocab, self.max_tokens_in_all)
            self._engine.add_request(f"score-{number}", prompt, scoring_of())
        found: dict[str, Any] = {}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                if output.finished:
                    found[output.request_id] = output.prompt_logprobs
        return [
            score_of(found[f"score-{number}"], sequence)
            for number, sequence in enumerate(sequences)
        ]

    def counters(self) -> dict[str, int]:
        """Totals since the engine was built."""
        return dict(vars(self._totals))

    def held(self) -> list[tuple[str, str]]:
        """File and qualified name of each function that a compiled graph of the engine holds."""
        model = self._worker().model_runner.get_model()
        return sorted({*graphs.traced(), *graphs.loaded(model)})

    def _worker(self) -> Any:
        return self._core.model_executor.driver_worker.worker

    def _apply_live(self, knobs: dict[str, Any]) -> None:
        if "max_num_seqs" in knobs:
            self._scheduler.max_num_running_reqs = knobs["max_num_seqs"]
            self._scheduler.max_num_active_reqs = knobs["max_num_seqs"]
        if "max_num_batched_tokens" in knobs:
            chunked = self._engine.vllm_config.scheduler_config.enable_chunked_prefill
            limit = knobs["max_num_batched_tokens"] if chunked else self._room
            self._scheduler.max_num_scheduled_tokens = limit
        if "long_prefill_token_threshold" in knobs:
            config = self._engine.vllm_config.scheduler_config
            config.long_prefill_token_threshold = knobs["long_prefill_token_threshold"]

    def _output(self, found: Any) -> dict[str, Any] | None:
        (made,) = found.outputs
        tokens = list(made.token_ids)
        number = int(found.request_id)
        finish = finish_of(made.finish_reason)
        self._totals.output_tokens += len(tokens)
        if finish:
            self._ids.discard(number)
            self._totals.cached_prompt_tokens += found.num_cached_tokens or 0
        if not tokens and not finish:
            return None
        return {
            "id": number,
            "tokens": tokens,
            "finish": finish,
            "logprobs": logprobs_of(made.logprobs, tokens),
        }

    def _counting(self, preempt: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self._totals.preemptions += 1
            return preempt(*arguments, **more)

        return counted


def _register_architecture(folder: str) -> None:
    """Have vLLM know the model's class itself: else it asks a process of its own about it."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    for name in config["architectures"]:
        known = ModelRegistry.models.get(name)
        if known is not None and hasattr(known, "module_name"):
            ModelRegistry.register_model(name, known.load_model_cls())
