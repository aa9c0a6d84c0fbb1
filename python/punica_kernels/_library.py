"""libpunica_kernels.so by ctypes: where it is, and its functions (punica_kernels.h)."""
from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

NAME = "libpunica_kernels.so"
MAX_PARTS = 3   # PUNICA_MAX_PARTS


class KernelError(RuntimeError):
    """The library refused a call, or the GPU failed."""


class Shape(ctypes.Structure):
    """punica_sgmv_shape"""
    _fields_ = [("type", ctypes.c_int), ("in_", ctypes.c_int), ("n_parts", ctypes.c_int), ("out", ctypes.c_int * MAX_PARTS),
                ("max_rows", ctypes.c_int), ("max_segments", ctypes.c_int), ("max_rank", ctypes.c_int)]


class LoraEntry(ctypes.Structure):
    """punica_lora"""
    _fields_ = [("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("rank", ctypes.c_int), ("scale", ctypes.c_float)]


def find() -> Path:
    """Returns the library's path: $PUNICA_KERNELS, inside this package (as in the wheel), or ../build of a source tree."""
    here = Path(__file__).resolve().parent
    given = os.environ.get("PUNICA_KERNELS")
    for path in [Path(given)] if given else [here / NAME, here.parents[1] / "build" / NAME]:
        if path.exists():
            return path
    raise OSError(f"{given or NAME} was not found: `make build` makes it where nvcc is; PUNICA_KERNELS may name its path")


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the library, loaded by the first call: importing the package needs neither it nor a GPU."""
    lib = ctypes.CDLL(str(find()))
    pointer = ctypes.c_void_p
    lib.punica_kernels_error.restype = ctypes.c_char_p
    lib.punica_sgmv_plan_new.argtypes = [ctypes.POINTER(pointer), ctypes.POINTER(Shape)]
    lib.punica_sgmv_plan_free.argtypes = [pointer]
    lib.punica_sgmv_plan_free.restype = None
    lib.punica_sgmv_plan_set.argtypes = [pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(LoraEntry), pointer]
    lib.punica_sgmv_v_cols.argtypes = [pointer]
    for function in (lib.punica_sgmv_shrink, lib.punica_sgmv_expand, lib.punica_lora_add):
        function.argtypes = [pointer, pointer, pointer, pointer]
    return lib


def check(status: int) -> None:
    """Raises KernelError with the library's message unless status is 0."""
    if status != 0:
        raise KernelError(library().punica_kernels_error().decode())
