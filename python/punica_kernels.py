"""Many LoRA adapters in one batch, on torch tensors: Punica's SGMV kernels through ctypes.

    import punica_kernels as pk

    plan = pk.Plan(torch.float16, in_features=4096, out_features=4096, max_rows=64, max_rank=64)
    plan.set([0, 3, 4], [pk.Lora(a0, b0, scale=2.0), pk.Lora(a1, b1)])      # rows 0..2 and row 3
    pk.lora_add(plan, y, x)                                                  # y += scale * (x A^T) B

`a` is [rank, in] as PEFT stores lora_A; `b` is [rank, out]: `lora_B.weight.t().contiguous()`. Ranks may
differ from adapter to adapter. A list of out_features, up to three, does several projections of one x at
once (q, k, v): y has their columns side by side, and a segment is given a list with one Lora (or None)
for each.

Everything is queued on torch's current stream of the plan's device; only set waits, for the set before. CUDA graphs
that were captured with a plan follow what it is set to later.

The library is looked for in $PUNICA_KERNELS, then beside this file and in ../build. `python3
punica_kernels.py` compares it with torch.
"""
import ctypes
import os
from collections import namedtuple

import torch

_TYPES = {torch.float16: 1, torch.bfloat16: 2}

Lora = namedtuple("Lora", "a b scale", defaults=(1.0,))
Lora.__doc__ = "One projection's addition: a [rank, in], b [rank, out], on the GPU; scale: lora_alpha / rank."


class KernelError(RuntimeError):
    """What the library refused to do, or the GPU's failure."""


class _Shape(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("in_", ctypes.c_int), ("n_parts", ctypes.c_int), ("out", ctypes.c_int * 3),
                ("max_rows", ctypes.c_int), ("max_segments", ctypes.c_int), ("max_rank", ctypes.c_int)]


class _Lora(ctypes.Structure):
    _fields_ = [("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("rank", ctypes.c_int), ("scale", ctypes.c_float)]


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    name = "libpunica_kernels.so"
    places = [os.environ.get("PUNICA_KERNELS"), os.path.join(here, name), os.path.join(here, "..", "build", name)]
    for path in filter(None, places):
        if os.path.exists(path):
            break
    else:
        raise OSError(f"{name} was not found; set PUNICA_KERNELS to its path")
    lib = ctypes.CDLL(path)
    pointer, plan = ctypes.c_void_p, ctypes.c_void_p
    lib.punica_kernels_error.restype = ctypes.c_char_p
    lib.punica_sgmv_plan_new.argtypes = [ctypes.POINTER(plan), ctypes.POINTER(_Shape)]
    lib.punica_sgmv_plan_free.argtypes = [plan]
    lib.punica_sgmv_plan_set.argtypes = [plan, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_Lora), pointer]
    lib.punica_sgmv_v_cols.argtypes = [plan]
    for f in (lib.punica_sgmv_shrink, lib.punica_sgmv_expand, lib.punica_lora_add):
        f.argtypes = [plan, pointer, pointer, pointer]
    return lib


_lib = _load()


def _check(status):
    if status != 0:
        raise KernelError(_lib.punica_kernels_error().decode())


class Plan:
    """Which rows of a batch use which adapter; made once for the largest batch, set for each."""

    def __init__(self, dtype, in_features, out_features, max_rows, max_rank, max_segments=None, device=None):
        """max_rank: of one projection. max_segments: max_rows if not given. device: the current one."""
        if dtype not in _TYPES:
            raise TypeError(f"{dtype} is neither torch.float16 nor torch.bfloat16")
        outs = list(out_features) if isinstance(out_features, (list, tuple)) else [out_features]
        if not 1 <= len(outs) <= 3:
            raise ValueError(f"{len(outs)} projections; 1 to 3 are possible")
        self._plan = None
        self.dtype, self.in_features, self.outs, self.max_rows = dtype, in_features, outs, max_rows
        self.device = torch.device("cuda" if device is None else device)
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        shape = _Shape(_TYPES[dtype], in_features, len(outs), (ctypes.c_int * 3)(*outs), max_rows,
                       max_segments or max_rows, max_rank)
        made = ctypes.c_void_p()
        with torch.cuda.device(self.device):
            _check(_lib.punica_sgmv_plan_new(ctypes.byref(made), ctypes.byref(shape)))
        self._plan = made
        self.n_rows = 0
        self.v_cols = _lib.punica_sgmv_v_cols(made)

    def __del__(self):
        if getattr(self, "_plan", None):
            with torch.cuda.device(self.device):
                _lib.punica_sgmv_plan_free(self._plan)

    def set(self, indptr, adapters):
        """Rows indptr[i] to indptr[i+1] use adapters[i]: a Lora, a list of one for each projection, or None.

        The plan keeps the tensors alive until it is set again."""
        n = len(adapters)
        if len(indptr) != n + 1:
            raise ValueError(f"{n} adapters need {n + 1} row numbers, not {len(indptr)}")
        table, kept = (_Lora * max(1, n * len(self.outs)))(), []
        for i, adapter in enumerate(adapters):
            parts = adapter if isinstance(adapter, list) else [adapter]
            if adapter is not None and len(parts) != len(self.outs):
                raise ValueError(f"adapter {i} has {len(parts)} parts for {len(self.outs)} projections")
            for j, part in enumerate(parts):
                if part is not None:
                    table[i * len(self.outs) + j] = self._entry(part, j)
                    kept.append(part)
                    for t in (part.a, part.b):      # not to be reused while kernels on this stream may read it
                        t.record_stream(torch.cuda.current_stream(self.device))
        rows = (ctypes.c_int * len(indptr))(*indptr)
        _check(_lib.punica_sgmv_plan_set(self._plan, n, rows, table, self._stream()))
        self.n_rows = indptr[-1]
        self._adapters = kept

    def _entry(self, lora, part):
        rank = lora.a.shape[0]
        self._check_tensor("a", lora.a, self.dtype, self.in_features, rank)
        self._check_tensor("b", lora.b, self.dtype, self.outs[part], rank)
        if lora.b.shape[0] != rank:
            raise ValueError(f"a has rank {rank}, b {lora.b.shape[0]}")
        return _Lora(lora.a.data_ptr(), lora.b.data_ptr(), rank, lora.scale)

    def _check_tensor(self, name, t, dtype, cols, rows):
        if t.device != self.device or t.dtype != dtype or not t.is_contiguous():
            raise ValueError(f"{name} must be a contiguous {dtype} tensor on {self.device}")
        if t.dim() != 2 or t.shape[1] != cols or t.shape[0] < rows:
            raise ValueError(f"{name} is {list(t.shape)}; [{rows} or more, {cols}] is needed")

    def _stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream

    def _call(self, function, *tensors):
        with torch.cuda.device(self.device):
            _check(function(self._plan, *(t.data_ptr() for t in tensors), self._stream()))


def sgmv_shrink(plan, x, v=None):
    """v = scale * x A^T, float32, [rows, plan.v_cols]; a row's projections stand back to back, each with its
    adapter's rank. What is beyond them, and rows without adapter, keep what they had (zeros in a new v)."""
    plan._check_tensor("x", x, plan.dtype, plan.in_features, plan.n_rows)
    if v is None:
        v = torch.zeros(x.shape[0], plan.v_cols, dtype=torch.float32, device=plan.device)
    plan._check_tensor("v", v, torch.float32, plan.v_cols, plan.n_rows)
    plan._call(_lib.punica_sgmv_shrink, v, x)
    return v


def sgmv_expand(plan, y, v):
    """y += v B, in place."""
    plan._check_tensor("y", y, plan.dtype, sum(plan.outs), plan.n_rows)
    plan._check_tensor("v", v, torch.float32, plan.v_cols, plan.n_rows)
    plan._call(_lib.punica_sgmv_expand, y, v)
    return y


def lora_add(plan, y, x):
    """y += scale * (x A^T) B, in place: both of the above, faster."""
    plan._check_tensor("x", x, plan.dtype, plan.in_features, plan.n_rows)
    plan._check_tensor("y", y, plan.dtype, sum(plan.outs), plan.n_rows)
    plan._call(_lib.punica_lora_add, y, x)
    return y


def _reference(plan, y, x):
    y = y.double()
    for i, adapter in enumerate(plan._adapters):
        rows, col = slice(plan._indptr[i], plan._indptr[i + 1]), 0
        for part, out in zip(adapter if isinstance(adapter, list) else [adapter], plan.outs):
            if part is not None:
                y[rows, col:col + out] += part.scale * (x[rows].double() @ part.a.double().t()) @ part.b.double()
            col += out
    return y


def _random_plan(dtype, in_features, outs, lengths, ranks):
    plan = Plan(dtype, in_features, outs, max_rows=max(1, sum(lengths)), max_rank=max(ranks))
    plan._indptr = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    random = lambda rows, cols, size: (torch.randn(rows, cols, device=plan.device) * size).to(dtype)
    adapters = []
    for i in range(len(lengths)):
        parts = [Lora(random(r, in_features, in_features ** -0.5), random(r, out, 0.3), 0.5 + j)
                 for j, out in enumerate(outs) for r in [ranks[(i + j) % len(ranks)]]]
        adapters.append(None if i % 5 == 4 else parts)
        if i % 3 == 2 and adapters[-1] is not None:
            parts[0] = None
    plan.set(plan._indptr, adapters)
    plan._adapters = [a if a is not None else [None] * len(outs) for a in adapters]
    return plan


def _relative_error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def _test_graph():
    """A captured graph follows what the plan is set to."""
    plan = _random_plan(torch.float16, 512, [256, 64], [3, 1, 20], [16, 8])
    x = torch.randn(24, 512, device=plan.device).half()
    y = torch.randn(24, 320, device=plan.device).half()
    out = y.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lora_add(plan, out, x)
    other = _random_plan(torch.float16, 512, [256, 64], [1] * 20, [4, 16])
    plan.set(other._indptr, other._adapters)
    out.copy_(y)
    graph.replay()
    error = _relative_error(out, _reference(other, y, x))
    print(f"replayed after the plan was set anew: relative error {error:.1e}")
    if not error < 4e-4:
        raise SystemExit("too large")


def _self_test():
    worst = {}
    for dtype in _TYPES:
        for in_features, outs in [(4096, [4096]), (4096, [4096, 1024, 1024]), (1000, [136, 72]), (60, [100])]:
            for lengths in [[1], [1] * 33, [40, 1, 1, 7, 16, 17, 1], [0, 5, 300, 0, 2]]:
                plan = _random_plan(dtype, in_features, outs, lengths, [16, 8, 1, 64, 12])
                x = torch.randn(plan.max_rows, in_features, device=plan.device).to(dtype)
                y = torch.randn(plan.max_rows, sum(outs), device=plan.device).to(dtype)
                want, both, split = _reference(plan, y, x), y.clone(), y.clone()
                lora_add(plan, both, x)
                sgmv_expand(plan, split, sgmv_shrink(plan, x))
                if not torch.equal(both, split):
                    raise SystemExit(f"lora_add and shrink + expand differ: {dtype} {in_features} {outs} {lengths}")
                worst[dtype] = max(worst.get(dtype, 0.0), _relative_error(both, want))
    for dtype, error in worst.items():
        print(f"{dtype}: largest relative error {error:.1e}")
        if not error < (4e-4 if dtype == torch.float16 else 3e-3):
            raise SystemExit("too large")
    _test_graph()
    try:
        Plan(torch.float16, 64, 64, max_rows=4, max_rank=8).set([0, 9], [None])
        raise SystemExit("rows past the plan's were not refused")
    except KernelError as e:
        print(f"refused as it should be: {e}")
    print("ok")


if __name__ == "__main__":
    _self_test()
