"""Keys and values of every position that is kept."""

import torch


class KVCache:
    """Storage of `slots` positions: keys and values [layers, slots, kv_heads, head_dim].

    Memory is not touched before it is written, so a large cache costs nothing until it is used.
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (layers, slots, kv_heads, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store k and v [rows, kv_heads, head_dim] at slots [rows]."""
        self.keys[layer].index_copy_(0, slots, k)
        self.values[layer].index_copy_(0, slots, v)

    def read(self, layer: int, context: slice | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [positions, kv_heads, head_dim]: views for a slice, else gathered."""
        if isinstance(context, slice):
            return self.keys[layer, context], self.values[layer, context]
        return self.keys[layer].index_select(0, context), self.values[layer].index_select(
            0, context
        )
