#!/usr/bin/env python3
"""Pictures of what bench.sh measured, drawn by gnuplot.

    tools/gpu/plots.py RESULTS [OUT]        (OUT: RESULTS)

Reads op.csv, baselines.csv, step.csv, grid-*.csv, layer-*.csv, fp8-*.csv, kv-*.csv, tp-*.csv, comm-*.csv and projected-*.csv, those that are there,
and writes an SVG for each figure of the paper that they hold.
"""
import csv
import subprocess
import sys
from pathlib import Path

WORKLOADS = ["distinct", "uniform", "skewed", "identical"]
ALL = ["none", *WORKLOADS]


def read(path):
    return list(csv.DictReader(path.open())) if path.exists() else []


def pick(rows, x, y, **wanted):
    """[(x, y)] of the rows that have these values."""
    return [(float(r[x]), float(r[y])) for r in rows if all(r[k] == str(v) for k, v in wanted.items())]


def draw(path, title, x_label, y_label, curves, settings=""):
    """curves: [(name, [(x, y)], dashed)], or with a number for the colour as well"""
    curves = [(*c, i + 1)[:4] for i, c in enumerate(curves) if c[1]]
    if not curves:
        return
    lines = ['set terminal svg size 900,560 font "sans,13" background "white"', f'set output "{path}"', "set grid",
             "set key outside right top", f'set title "{title}"', f'set xlabel "{x_label}"', f'set ylabel "{y_label}"', settings]
    for i, (_, points, _, _) in enumerate(curves):
        lines += [f"$c{i} << END", *(f"{x} {y}" for x, y in points), "END"]
    lines.append("plot " + ", ".join(f'$c{i} with linespoints lw 2 lc {color} pt 7 ps 0.5 dt {2 if dashed else 1} title "{name}"'
                                     for i, (name, _, dashed, color) in enumerate(curves)))
    subprocess.run(["gnuplot"], input="\n".join(lines), text=True, check=True)
    print(path)


def draw_op(op, baselines, out):
    at = dict(rank=16) | {"in": 4096, "out": 4096}
    curves = [(f"SGMV, {w}", pick(op, "rows", "us", workload=w, **at), False) for w in WORKLOADS]
    curves += [(f"{how}, {w}", pick(baselines, "rows", "us", how=how, workload=w, **at), True)
               for how in ("gather-bmm", "loop") for w in ("distinct", "identical")]
    draw(out / "op.svg", "LoRA operator, 4096 to 4096, rank 16, FP16, cold weights", "rows", "microseconds", curves,
         "set logscale xy 2")


def draw_ranks(op, out):
    at = {"in": 4096, "out": 4096}
    ranks = sorted({int(r["rank"]) for r in op})
    curves = [(f"rank {k}, {w}", pick(op, "rows", "us", rank=k, workload=w, **at), w == "identical", i + 1)
              for i, k in enumerate(ranks) for w in ("distinct", "identical")]
    draw(out / "ranks.svg", "LoRA operator by rank, 4096 to 4096, FP16, cold weights", "rows", "microseconds", curves,
         "set logscale xy 2")


def draw_roofline(op, out):
    at = dict(rank=16) | {"in": 4096, "out": 4096}
    curves = [(w, sorted(pick(op, "flop_per_byte", "gflop_per_s", workload=w, **at)), False) for w in WORKLOADS]
    points = [x for _, curve, _ in curves for x, _ in curve]
    if points:
        r = max(op, key=lambda r: float(r["bytes_us"]))         # the others' few digits would show
        weights = 2 * int(r["adapters"]) * int(r["rank"]) * (int(r["in"]) + int(r["out"]))
        bandwidth = weights / float(r["bytes_us"]) / 1e3        # GB/s
        curves.append((f"memory, {bandwidth / 1e3:.2f} TB/s", [(x, x * bandwidth) for x in (min(points), max(points))], True))
    draw(out / "roofline.svg", "SGMV roofline, 4096 to 4096, rank 16", "operations per byte", "GFLOP/s", curves,
         "set logscale xy 2")


def draw_decodes(rows, name, unit, scale, out):
    for context in sorted({int(r["context"]) for r in rows}):
        curves = [(w, [(x, y * scale) for x, y in pick(rows, "batch", "us", context=context, workload=w)], False) for w in ALL]
        curves += [(f"bytes, {w}", [(x, y * scale) for x, y in pick(rows, "batch", "floor_us", context=context, workload=w)], True)
                   for w in ("none", "distinct")]
        draw(out / f"{name}-{context}.svg", f"{rows[0]['shape']}, {rows[0]['what']}, context {context}", "batch", unit, curves,
             "set logscale x 2\nset yrange [0:]")


def draw_grid(source, shape, out):
    """Over the floor by batch: contexts, workloads, and adapters of one rank beside those of many."""
    curves = []
    for color, ranks in enumerate(("16", "mixed")):
        rows = read(source / f"grid-{shape}-{ranks}.csv")
        for context in sorted({int(r["context"]) for r in rows}):
            for w in ALL if context == 512 else ("none",):
                points = pick(rows, "batch", "over_floor", context=context, workload=w)
                if ranks == "16" or w != "none":
                    curves.append((f"{w}, context {context}" + (", ranks mixed" if color else ""), points, bool(color)))
    draw(out / f"grid-{shape}.svg", f"{shape}: a decode step over its floor, F16", "batch", "times the floor", curves,
         "set logscale x 2\nset yrange [1:]")


def draw_fp8(source, shape, out):
    """Steps with 16-bit weights and with FP8, and what their bytes need."""
    curves = []
    for color, weights in enumerate(("stored", "fp8")):
        rows = read(source / f"fp8-{shape}-{weights}.csv")
        for w in ("none", "distinct"):
            name, at = ("F16" if weights == "stored" else "FP8") + f", {w}", dict(context=512, workload=w)
            curves.append((name, [(x, y * 1e-3) for x, y in pick(rows, "batch", "us", **at)], False, 2 * color + (w == "none") + 1))
            curves.append((f"bytes, {name}", [(x, y * 1e-3) for x, y in pick(rows, "batch", "floor_us", **at)], True,
                           2 * color + (w == "none") + 1))
    draw(out / f"fp8-{shape}.svg", f"{shape}, step, context 512, 16-bit KvCache", "batch", "milliseconds", curves,
         "set logscale x 2\nset yrange [0:]")


def draw_kv(source, out):
    """7B steps at two contexts: 16-bit and FP8 weights, each with both kinds of KvCache."""
    for context in (512, 2048):
        curves = []
        for weights, name in (("stored", "F16"), ("fp8", "FP8")):
            for kv, kv_name in (("auto", "F16"), ("fp8", "FP8")):
                rows = read(source / f"kv-llama2-7b-{weights}-{kv}.csv")
                at = dict(context=context, workload="none")
                curves.append((f"weights {name}, KvCache {kv_name}", [(x, y * 1e-3) for x, y in pick(rows, "batch", "us", **at)], False))
        draw(out / f"kv-llama2-7b-{context}.svg", f"llama2-7b, step, context {context}, no adapters", "batch", "milliseconds", curves,
             "set yrange [0:]")


def draw_tp(source, out):
    """What the split itself costs: ranks that share one GPU."""
    curves = []
    for w in ("none", "distinct"):
        points = [(tp, y * 1e-3) for tp in (1, 2, 4)
                  for _, y in pick(read(source / f"tp-llama2-7b-{tp}.csv"), "batch", "us", batch=32, workload=w)]
        curves.append((f"7B, {w}, batch 32", points, False))
        points = [(tp, y * 1e-3) for tp in (1, 2)
                  for _, y in pick(read(source / f"tp-llama2-70b-{tp}.csv"), "batch", "us", batch=4, workload=w)]
        curves.append((f"70B, {w}, batch 4", points, True))
    draw(out / "tp.svg", "ranks on one GPU, F16, context 512", "ranks", "milliseconds a step", curves, "set yrange [0:]\nset xtics 1")


def draw_comm(source, out):
    curves = [(f"{n} ranks, sum and norm", pick(read(source / f"comm-{n}.csv"), "batch", "sum_norm_us"), False) for n in (2, 4, 8)]
    curves += [(f"{n} ranks, logits", pick(read(source / f"comm-{n}.csv"), "batch", "gather_us"), True, i + 1) for i, n in enumerate((2, 4, 8))]
    curves.append(("one rank's norm alone", pick(read(source / "comm-8.csv"), "batch", "norm_us"), False))
    draw(out / "comm.svg", "sums over ranks that share one GPU, rows of 8192, 32000 tokens", "batch", "microseconds", curves,
         "set logscale xy 2")


def draw_projected(source, out):
    """The paper's last figure: Llama-2-70B, tokens a second at batch 32."""
    rows, single = read(source / "projected-llama2-70b.csv"), read(source / "kv-llama2-70b-fp8-auto.csv")
    if not rows:
        return
    by = lambda points: [(i + 1, y) for i, w in enumerate(WORKLOADS) for y in points(w)]
    curves = [(f"8 H200, {form}: PROJECTED", by(lambda w: [y for _, y in pick(rows, "batch", "tokens_per_s", batch=32, weights=form, workload=w)]), True)
              for form in ("FP8", "F16")]
    curves.append(("1 H200, FP8: measured", by(lambda w: [32e6 / y for _, y in pick(single, "batch", "us", batch=32, workload=w)]), False))
    curves.append(("8 A100, F16: the paper, 441 to 446", [(1, 444), (4, 444)], False))
    draw(out / "projected-llama2-70b.svg", "Llama-2-70B, batch 32, context 512, rank 16", "workload", "tokens a second", curves,
         'set yrange [0:]\nset xrange [0.8:4.2]\nset xtics ("Distinct" 1, "Uniform" 2, "Skewed" 3, "Identical" 4)')


def main():
    source = Path(sys.argv[1])
    out = Path(sys.argv[2] if len(sys.argv) > 2 else source)
    out.mkdir(parents=True, exist_ok=True)
    op = read(source / "op.csv")
    draw_op(op, read(source / "baselines.csv"), out)
    draw_ranks(op, out)
    draw_roofline(op, out)
    draw_decodes(read(source / "step.csv"), "step", "milliseconds", 1e-3, out)
    for shape in ("llama3-8b", "llama2-7b", "qwen2.5-7b", "llama2-13b"):
        draw_grid(source, shape, out)
    for shape in ("llama2-7b", "llama2-13b"):
        draw_fp8(source, shape, out)
    if (source / "fp8-llama2-70b.csv").exists():
        draw_decodes(read(source / "fp8-llama2-70b.csv"), "fp8-llama2-70b", "milliseconds", 1e-3, out)
    draw_kv(source, out)
    draw_tp(source, out)
    draw_comm(source, out)
    draw_projected(source, out)
    for path in sorted(source.glob("layer-*.csv")):
        draw_decodes(read(path), path.stem, "microseconds", 1, out)


if __name__ == "__main__":
    main()
