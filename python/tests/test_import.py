"""Without a GPU and without torch: the package can be imported, and names what is missing."""
import os
import sys
import types
import unittest
from unittest import mock

TORCH = types.SimpleNamespace(float16="float16", bfloat16="bfloat16", float32="float32")     # all that is used before there is a plan

with mock.patch.dict(sys.modules, {"torch": TORCH}):        # and both are forgotten again: test_kernels.py has the real ones
    import punica_kernels as pk
    from punica_kernels import _library


class WithoutGpu(unittest.TestCase):
    def test_names(self):
        self.assertLessEqual(set(pk.__all__), set(dir(pk)))
        self.assertEqual(pk.Lora(1, 2).scale, 1.0)

    def test_types_and_shapes_are_refused_before_the_library_is_looked_for(self):
        with self.assertRaisesRegex(TypeError, "float32"):
            pk.Plan(TORCH.float32, 64, 64, max_rows=4, max_rank=8)
        with self.assertRaisesRegex(ValueError, "4 projections"):
            pk.Plan(TORCH.float16, 64, [64] * 4, max_rows=4, max_rank=8)

    def test_a_library_that_is_not_there(self):
        with mock.patch.dict(os.environ, PUNICA_KERNELS="/nowhere.so"), self.assertRaisesRegex(OSError, "nowhere.so was not found"):
            _library.find()


if __name__ == "__main__":
    unittest.main()
