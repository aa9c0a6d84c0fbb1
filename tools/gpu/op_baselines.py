#!/usr/bin/env python3
"""The paper's two baselines for the LoRA operator, in PyTorch, beside `punica bench op`.

    tools/gpu/op_baselines.py [--csv FILE]

Loop: for every adapter in the batch, two matrix products over its rows. Gather-BMM: every row's weights
are gathered into one tensor, then two batched products. FP16, CUDA graph replay, weights cold: every
pair in the graph uses other weights, until some hundred megabytes have been used. Time is that of one
pair, the median over replays.
"""
import argparse
import csv
import math
import statistics
import sys

import torch

COLD_BYTES = 512 << 20
MAX_PAIRS = 512


def adapters_of(workload, n):
    """Adapter of each row, sorted, as workload.c assigns them."""
    if workload == "distinct":
        return list(range(n))
    if workload == "identical":
        return [0] * n
    if workload == "uniform":
        k = math.ceil(math.sqrt(n))
        return sorted(i % k for i in range(n))
    rows, adapter, share = [], 0, n / 3
    while len(rows) < n:
        rows += [adapter] * max(1, int(share + 0.5))
        adapter, share = adapter + 1, share / 1.5
    return rows[:n]


def loop_pair(x, y, a, b, which):
    first = 0
    for adapter in dict.fromkeys(which):
        n = which.count(adapter)
        rows = slice(first, first + n)
        y[rows] += (x[rows] @ a[adapter].T) @ b[adapter]
        first += n


def gather_pair(x, y, a, b, index):
    v = torch.bmm(x.unsqueeze(1), a.index_select(0, index).transpose(1, 2))
    y += torch.bmm(v, b.index_select(0, index)).squeeze(1)


def time_pairs(make_pair, n_pairs):
    """Microseconds of one pair, from replays of a graph of them all."""
    for i in range(n_pairs):
        make_pair(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n_pairs):
            make_pair(i)
    times = []
    for _ in range(9):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / n_pairs)
    return statistics.median(times[2:])


def measure(name, n_in, n_out, rank, n, workload):
    which = adapters_of(workload, n)
    n_adapters = max(which) + 1
    pair_bytes = n_adapters * rank * (n_in + n_out) * 2
    sets = max(4, min(MAX_PAIRS, COLD_BYTES // pair_bytes))
    a = torch.randn(sets, n_adapters, rank, n_in, device="cuda", dtype=torch.float16)
    b = torch.randn(sets, n_adapters, rank, n_out, device="cuda", dtype=torch.float16)
    x = torch.randn(n, n_in, device="cuda", dtype=torch.float16)
    y = torch.zeros(n, n_out, device="cuda", dtype=torch.float16)
    index = torch.tensor(which, device="cuda")
    if name == "loop":
        return time_pairs(lambda i: loop_pair(x, y, a[i], b[i], which), sets)
    return time_pairs(lambda i: gather_pair(x, y, a[i], b[i], index), sets)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", help="write the results there too")
    args = parser.parse_args()
    out = csv.writer(open(args.csv, "w") if args.csv else sys.stdout)
    out.writerow(["how", "in", "out", "rank", "rows", "workload", "us"])
    for rank in (16, 64):
        for n in (1, 8, 32, 64):
            for workload in ("identical", "uniform", "skewed", "distinct"):
                for name in ("loop", "gather-bmm"):
                    us = measure(name, 4096, 4096, rank, n, workload)
                    out.writerow([name, 4096, 4096, rank, n, workload, f"{us:.2f}"])
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
