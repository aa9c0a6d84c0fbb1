"""Many LoRA adapters in one batch, on torch tensors: Punica's SGMV kernels through ctypes.

    import punica_kernels as pk

    plan = pk.Plan(torch.float16, in_features=4096, out_features=4096, max_rows=64, max_rank=64)
    plan.set([0, 3, 4], [pk.Lora(a0, b0, scale=2.0), pk.Lora(a1, b1)])      # rows 0..2 and row 3
    pk.lora_add(plan, y, x)                                                  # y += scale * (x A^T) B

`a` is [rank, in] as PEFT stores lora_A; `b` is [rank, out]: `lora_B.weight.t().contiguous()`. Ranks may
differ from adapter to adapter. A list of out_features, up to three, does several projections of one x at
once (q, k, v): y has their columns side by side, and a segment is given a list with one Lora (or None)
for each.

Everything is queued on torch's current stream of the plan's device; only set() waits, for the set() before
it. CUDA graphs captured with a plan follow later settings.

Importing needs no GPU; the library is loaded by the first Plan.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import torch

from ._library import MAX_PARTS, KernelError, LoraEntry, Shape, check, library

__all__ = ["KernelError", "Lora", "Plan", "lora_add", "sgmv_expand", "sgmv_shrink"]

_TYPES = {torch.float16: 1, torch.bfloat16: 2}


class Lora(NamedTuple):
    """One projection's addition: a [rank, in], b [rank, out], on the GPU; scale: lora_alpha / rank."""
    a: torch.Tensor
    b: torch.Tensor
    scale: float = 1.0


Adapter = Union[None, Lora, Sequence[Optional[Lora]]]
"""What the rows of a segment use: nothing, one Lora, or one (or None) for each projection."""


class Plan:
    """Which rows of a batch use which adapter; made once for the largest batch, set for each batch."""

    def __init__(self, dtype: torch.dtype, in_features: int, out_features: Union[int, Sequence[int]], max_rows: int, max_rank: int,
                 max_segments: Optional[int] = None, device: Union[None, str, torch.device] = None) -> None:
        """max_rank: of one projection. max_segments: max_rows if not given. device: the current one."""
        if dtype not in _TYPES:
            raise TypeError(f"{dtype} is neither torch.float16 nor torch.bfloat16")
        outs = [out_features] if isinstance(out_features, int) else list(out_features)
        if not 1 <= len(outs) <= MAX_PARTS:
            raise ValueError(f"{len(outs)} projections; 1 to {MAX_PARTS} are possible")
        self._plan: Optional[ctypes.c_void_p] = None
        self.dtype, self.in_features, self.outs, self.max_rows = dtype, in_features, outs, max_rows
        self.device = torch.device("cuda" if device is None else device)
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        shape = Shape(_TYPES[dtype], in_features, len(outs), (ctypes.c_int * MAX_PARTS)(*outs), max_rows, max_segments or max_rows, max_rank)
        made = ctypes.c_void_p()
        with torch.cuda.device(self.device):
            check(library().punica_sgmv_plan_new(ctypes.byref(made), ctypes.byref(shape)))
        self._plan = made
        self._kept: list[Lora] = []
        self.n_rows = 0
        self.v_cols: int = library().punica_sgmv_v_cols(made)

    def __del__(self) -> None:
        if getattr(self, "_plan", None):
            with torch.cuda.device(self.device):
                library().punica_sgmv_plan_free(self._plan)

    def set(self, indptr: Sequence[int], adapters: Sequence[Adapter]) -> None:
        """Makes rows [indptr[i], indptr[i+1]) use adapters[i].

        The plan keeps the tensors alive until it is set again."""
        n = len(adapters)
        if len(indptr) != n + 1:
            raise ValueError(f"{n} adapters need {n + 1} row numbers, not {len(indptr)}")
        table, kept = (LoraEntry * max(1, n * len(self.outs)))(), []
        for i, adapter in enumerate(adapters):
            parts = self._parts(i, adapter)
            for j, part in enumerate(parts):
                if part is not None:
                    table[i * len(self.outs) + j] = self._entry(part, j)
                    kept.append(part)
                    for t in (part.a, part.b):      # not to be reused while kernels on this stream may read it
                        t.record_stream(torch.cuda.current_stream(self.device))
        rows = (ctypes.c_int * len(indptr))(*indptr)
        check(library().punica_sgmv_plan_set(self._plan, n, rows, table, self._stream()))
        self.n_rows = indptr[-1]
        self._kept = kept

    def _parts(self, i: int, adapter: Adapter) -> Sequence[Optional[Lora]]:
        """Returns the parts of adapter i, one for each projection, or none where it is None."""
        if adapter is None:
            return []
        parts = [adapter] if isinstance(adapter, Lora) else adapter
        if len(parts) != len(self.outs):
            raise ValueError(f"adapter {i} has {len(parts)} parts for {len(self.outs)} projections")
        return parts

    def _entry(self, lora: Lora, part: int) -> LoraEntry:
        rank = lora.a.shape[0]
        self._check_tensor("a", lora.a, self.dtype, self.in_features, rank)
        self._check_tensor("b", lora.b, self.dtype, self.outs[part], rank)
        if lora.b.shape[0] != rank:
            raise ValueError(f"a has rank {rank}, b {lora.b.shape[0]}")
        return LoraEntry(lora.a.data_ptr(), lora.b.data_ptr(), rank, lora.scale)

    def _check_tensor(self, name: str, t: torch.Tensor, dtype: torch.dtype, cols: int, rows: int) -> None:
        if t.device != self.device or t.dtype != dtype or not t.is_contiguous():
            raise ValueError(f"{name} must be a contiguous {dtype} tensor on {self.device}")
        if t.dim() != 2 or t.shape[1] != cols or t.shape[0] < rows:
            raise ValueError(f"{name} is {list(t.shape)}; [{rows} or more, {cols}] is needed")

    def _stream(self) -> int:
        stream: int = torch.cuda.current_stream(self.device).cuda_stream
        return stream

    def _call(self, function: str, *tensors: torch.Tensor) -> None:
        with torch.cuda.device(self.device):
            check(getattr(library(), function)(self._plan, *(t.data_ptr() for t in tensors), self._stream()))


def sgmv_shrink(plan: Plan, x: torch.Tensor, v: Optional[torch.Tensor] = None) -> torch.Tensor:
    """v = scale * x A^T, float32, [rows, plan.v_cols]; a row's projections stand back to back, each with its
    adapter's rank. What is beyond them, and rows without adapter, keep what v had; a new v,
    made if none is given, has zeros there."""
    plan._check_tensor("x", x, plan.dtype, plan.in_features, plan.n_rows)
    if v is None:
        v = torch.zeros(x.shape[0], plan.v_cols, dtype=torch.float32, device=plan.device)
    plan._check_tensor("v", v, torch.float32, plan.v_cols, plan.n_rows)
    plan._call("punica_sgmv_shrink", v, x)
    return v


def sgmv_expand(plan: Plan, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """y += v B, in place."""
    plan._check_tensor("y", y, plan.dtype, sum(plan.outs), plan.n_rows)
    plan._check_tensor("v", v, torch.float32, plan.v_cols, plan.n_rows)
    plan._call("punica_sgmv_expand", y, v)
    return y


def lora_add(plan: Plan, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """y += scale * (x A^T) B, in place; faster than the two above."""
    plan._check_tensor("x", x, plan.dtype, plan.in_features, plan.n_rows)
    plan._check_tensor("y", y, plan.dtype, sum(plan.outs), plan.n_rows)
    plan._call("punica_lora_add", y, x)
    return y
