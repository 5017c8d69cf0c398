"""vLLM's model loader over mapped weights: nothing is read or parsed, only copied in place."""

from collections.abc import Callable

from torch import nn
from vllm.config import ModelConfig
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from .arguments import FORMAT
from .weights import tensors_of


class MappedModelLoader(BaseModelLoader):
    """Loads from a prepared folder; the model's path is that folder."""

    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(load_config)

    def download_model(self, model_config: ModelConfig) -> None:
        """Nothing to download."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Give every tensor to the model. Raises ValueError for a parameter that got none."""
        load: Callable[..., set[str] | None] = getattr(model, "load_weights")  # noqa: B009
        loaded = load(tensors_of(model_config.model))
        if loaded is None or model_config.quantization is not None:
            return
        absent = {name for name, _ in model.named_parameters()} - loaded
        if absent:
            raise ValueError(f"the model's {sorted(absent)[0]} is not among the prepared weights")


register_model_loader(FORMAT)(MappedModelLoader)
