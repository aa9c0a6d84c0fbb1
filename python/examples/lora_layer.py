"""A linear layer whose rows have adapters of their own, in PyTorch. Needs a GPU, and the package: its wheel, or in the source tree

    PYTHONPATH=python python3 python/examples/lora_layer.py
"""
from __future__ import annotations

import itertools
from collections.abc import Sequence

import punica_kernels as pk
import torch


class MultiLoraLinear(torch.nn.Module):
    """base(x), plus what each row's own adapter adds."""

    def __init__(self, base: torch.nn.Linear, max_rows: int, max_rank: int = 64) -> None:
        super().__init__()
        self.base = base
        self.plan = pk.Plan(base.weight.dtype, base.in_features, base.out_features, max_rows, max_rank)
        self.adapters: dict[str, pk.Lora] = {}

    def add_adapter(self, name: str, lora_a: torch.Tensor, lora_b: torch.Tensor, alpha: float) -> None:
        """Adds an adapter: lora_a [rank, in] and lora_b [out, rank], as PEFT stores them."""
        self.adapters[name] = pk.Lora(lora_a, lora_b.t().contiguous(), alpha / lora_a.shape[0])

    def use(self, names: Sequence[str | None]) -> None:
        """Sets which adapter each row of the next batch has; None: the base alone. Adjacent rows of one adapter are a segment."""
        indptr, used = [0], []
        for name, rows in itertools.groupby(names):
            indptr.append(indptr[-1] + len(list(rows)))
            used.append(None if name is None else self.adapters[name])
        self.plan.set(indptr, used)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [rows, in]"""
        return pk.lora_add(self.plan, self.base(x), x)


def main() -> None:
    torch.manual_seed(0)
    layer = MultiLoraLinear(torch.nn.Linear(4096, 4096, bias=False).half().cuda(), max_rows=64).requires_grad_(False)
    for name, rank in [("sql", 16), ("legal", 8), ("french", 64)]:
        layer.add_adapter(name, torch.randn(rank, 4096).half().cuda() / 64, torch.randn(4096, rank).half().cuda() / 8, alpha=2 * rank)
    rows = ["sql", "sql", None, "french", "legal", "legal"]
    x = torch.randn(len(rows), 4096).half().cuda()
    layer.use(rows)     # once for each batch
    y = layer(x)
    for i, adapter in enumerate(rows):
        want = layer.base(x[i])
        if adapter:
            lora = layer.adapters[adapter]
            want = want + lora.scale * (x[i] @ lora.a.t()) @ lora.b
        print(f"row {i}, {adapter or 'base'}: differs from PyTorch by {((y[i] - want).norm() / want.norm()).item():.1e}")


if __name__ == "__main__":
    main()
