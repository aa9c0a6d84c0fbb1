#!/usr/bin/env python3
"""Llama-2-70B over 8 GPUs, projected from parts measured on one.

    tools/gpu/project.py RESULTS [STEPS]        (STEPS: docs/results/step-70b-8xh200-projected.json)

Reads tp-share-*.csv (`bench step --shape llama2-70b/8`: what one of 8 ranks does) and comm-8.csv (`bench comm --tp 8`: how ranks
add up, all on one GPU), and writes projected-llama2-70b.csv, and step times for `punica simulate --steps`. The constants at the
top are the model's shape and what is assumed rather than measured.

A step of the group is the share's step, and for each of the 160 sums over ranks: the time for ranks to meet and add up (measured at
8 rows, less the norm, which the share has already), two round trips between GPUs, and 7 parts read from the others. With
adapters their second half is a kernel of its own before each sum.
"""
import csv
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RANKS, LAYERS, HIDDEN, VOCAB = 8, 80, 8192, 32000
LINK = 0.8 * 450e9              # bytes a second from other GPUs: assumed, of the 450 GB/s that NVLink 4 is said to have
ROUND_TRIPS = 3e-6              # assumed: flags and data over NVLink instead of within one GPU
EXPAND = 1.4e-6                 # tp-llama2-7b-2.csv over tp-llama2-7b-1.csv, Identical, batch 32: 0.185 ms for 128 kernels
DRAW = 20e-6                    # assumed: from 32,000 tokens instead of 4,000
SUMS = 2 * LAYERS
WORKLOADS = ["none", "identical", "uniform", "skewed", "distinct"]


def read(path):
    return list(csv.DictReader(path.open()))


def from_others(rows, cols, size):
    """Seconds until 7 parts have been read."""
    return (RANKS - 1) * rows * cols * size / LINK


def step_seconds(share, meeting, gather, rows, workload):
    sums = SUMS * (meeting + ROUND_TRIPS + from_others(rows, HIDDEN, 2) + (EXPAND if workload != "none" else 0))
    ends = 2 * ROUND_TRIPS + meeting + from_others(rows, HIDDEN, 4) + gather + from_others(rows, VOCAB // RANKS, 4) + DRAW
    return share + sums + ends, sums


def project(source):
    """[{weights, batch, workload, share_us, sums_us, us, tokens_per_s}]"""
    comm = {int(r["batch"]): r for r in read(source / "comm-8.csv")}
    meeting = (float(comm[8]["sum_norm_us"]) - float(comm[8]["norm_us"])) * 1e-6
    rows = []
    for weights in ("stored", "fp8"):
        for r in read(source / f"tp-share-{weights}.csv"):
            batch, share = int(r["batch"]), float(r["us"]) * 1e-6
            seconds, sums = step_seconds(share, meeting, float(comm[8]["gather_us"]) * 1e-6, batch, r["workload"])
            rows.append(dict(weights=r["dtype"], batch=batch, workload=r["workload"], share_us=round(share * 1e6, 1), sums_us=round(sums * 1e6, 1),
                             us=round(seconds * 1e6, 1), tokens_per_s=round(batch / seconds)))
    return rows


def steps_for_simulate(rows):
    at = {(r["batch"], r["workload"]): r["us"] / 1e3 for r in rows if r["weights"] == "F16"}
    return {
        "about": "PROJECTION: llama2-70b, f16, over 8 H200 by --tp 8, from parts measured on one (tools/gpu/project.py); a GPU here is 8",
        "context": 512,
        "steps": [{"batch": b, "identical_ms": round(at[b, "identical"], 2), "distinct_ms": round(at[b, "distinct"], 2)} for b in (1, 8, 16, 32)],
        "kv_bytes_per_token": 2 * LAYERS * 8 * 128 * 2 // RANKS,
        "bytes_per_second": 4.53e12,
        "prefill_ms": 2.0,                      # this and the next are estimates: the 7B model's measured FLOP/s, and 4.6 MB a token by LINK
        "prefill_tokens_per_second": 25000,
        "adapter_load_ms": 1.1,
    }


def main():
    source = Path(sys.argv[1])
    rows = project(source)
    with (source / "projected-llama2-70b.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    for r in rows:
        print("{weights:4} batch {batch:2} {workload:9} share {share_us:7} us, sums {sums_us:7} us, step {us:8} us, {tokens_per_s} tokens/s".format(**r))
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/results/step-70b-8xh200-projected.json"
    path.write_text(re.sub(r"\{\s+(\"batch.*?)\s+\}", lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}",
                           json.dumps(steps_for_simulate(rows), indent=4), flags=re.DOTALL) + "\n")


if __name__ == "__main__":
    main()
