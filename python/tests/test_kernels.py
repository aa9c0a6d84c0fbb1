"""The kernels against torch in float64, on a GPU. Needs only torch and the standard library, since GPU machines are bare:

    PYTHONPATH=python python3 python/tests/test_kernels.py
"""
import itertools
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no torch") from None
import punica_kernels as pk

LIMIT = {torch.float16: 4e-4, torch.bfloat16: 3e-3}     # of the error, relative to the result
SHAPES = [(4096, [4096]), (4096, [4096, 1024, 1024]), (1000, [136, 72]), (60, [100])]
LENGTHS = [[1], [1] * 33, [40, 1, 1, 7, 16, 17, 1], [0, 5, 300, 0, 2]]


class Batch:
    """A plan with random adapters of mixed ranks: every fifth segment has none, every third none for its first projection."""

    def __init__(self, dtype, in_features, outs, lengths, ranks=(16, 8, 1, 64, 12)):
        self.plan = pk.Plan(dtype, in_features, outs, max_rows=max(1, sum(lengths)), max_rank=max(ranks))
        self.indptr = [0, *itertools.accumulate(lengths)]
        self.adapters = [self.adapter(i, ranks) for i in range(len(lengths))]
        self.plan.set(self.indptr, self.adapters)

    def random(self, rows, cols, size=1.0):
        return (torch.randn(rows, cols, device=self.plan.device) * size).to(self.plan.dtype)

    def adapter(self, i, ranks):
        if i % 5 == 4:
            return None
        inner, parts = self.plan.in_features, []
        for j, out in enumerate(self.plan.outs):
            rank = ranks[(i + j) % len(ranks)]
            parts.append(pk.Lora(self.random(rank, inner, inner ** -0.5), self.random(rank, out, 0.3), 0.5 + j))
        if i % 3 == 2:
            parts[0] = None
        return parts

    def expected(self, y, x):
        y = y.double()
        for i, adapter in enumerate(self.adapters):
            rows, col = slice(self.indptr[i], self.indptr[i + 1]), 0
            for part, out in zip(adapter or [], self.plan.outs):
                if part is not None:
                    y[rows, col:col + out] += part.scale * (x[rows].double() @ part.a.double().t()) @ part.b.double()
                col += out
        return y


def relative_error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Kernels(unittest.TestCase):
    def test_against_torch(self):
        for dtype, (in_features, outs), lengths in itertools.product(LIMIT, SHAPES, LENGTHS):
            with self.subTest(dtype=dtype, in_features=in_features, outs=outs, lengths=lengths):
                self.compare(Batch(dtype, in_features, outs, lengths))

    def compare(self, b):
        x, y = b.random(b.plan.max_rows, b.plan.in_features), b.random(b.plan.max_rows, sum(b.plan.outs))
        both, split = y.clone(), y.clone()
        pk.lora_add(b.plan, both, x)
        pk.sgmv_expand(b.plan, split, pk.sgmv_shrink(b.plan, x))
        self.assertTrue(torch.equal(both, split))
        self.assertLess(relative_error(both, b.expected(y, x)), LIMIT[b.plan.dtype])

    def test_a_captured_graph_follows_the_plan(self):
        b = Batch(torch.float16, 512, [256, 64], [3, 1, 20], (16, 8))
        x, y = b.random(24, 512), b.random(24, 320)
        out, graph = y.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            pk.lora_add(b.plan, out, x)
        other = Batch(torch.float16, 512, [256, 64], [1] * 20, (4, 16))
        b.plan.set(other.indptr, other.adapters)
        out.copy_(y)
        graph.replay()
        self.assertLess(relative_error(out, other.expected(y, x)), LIMIT[torch.float16])

    def test_rows_past_the_plan_are_refused(self):
        with self.assertRaises(pk.KernelError):
            pk.Plan(torch.float16, 64, 64, max_rows=4, max_rank=8).set([0, 9], [None])


if __name__ == "__main__":
    unittest.main()
