#!/usr/bin/env python3
"""Draws the pictures of docs/results and of docs/lab from CSV files. Needs matplotlib (tests/requirements.txt).

    tools/plots.py                  those of both, from the data folder of each
    tools/plots.py DATA OUT         into OUT, those whose files are all in DATA: the folder that tools/gpu/bench.sh has filled, or one with a
                                    cluster-hour.csv of `punica simulate --csv`. The figures of others are those of docs.
"""
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from tables import DATA, ROOT, read, value

LAB = ROOT / "docs/lab"
WORKLOADS = ["none", "identical", "skewed", "uniform", "distinct"]
COLORS = {"none": "#555555", "identical": "#1b9e77", "skewed": "#7570b3", "uniform": "#e6a700", "distinct": "#c0392b"}
STYLE = {
    "svg.fonttype": "none",             # text stays text
    "svg.hashsalt": "punica",           # the same picture has the same bytes
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "lines.markersize": 4,
}


def pick(rows, x, y, scale=1, **wanted):
    """The x and y columns of the rows that have the wanted values, by x."""
    points = sorted((float(r[x]), float(r[y]) * scale) for r in rows
                    if r[y] and all(r[k] == str(v) for k, v in wanted.items()))
    return [p[0] for p in points], [p[1] for p in points]


def number_ticks(axis):
    axis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_minor_formatter("")


def batch_axis(ax, label="batch (rows)"):
    ax.set_xscale("log", base=2)
    number_ticks(ax.xaxis)
    ax.set_xlabel(label)


def legend_beside(figure, ax):
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center")


def bars(ax, groups, series, colors):
    """One group of bars for each name; series: {name: [height, or None]}. Every bar is labelled with its height."""
    width = 0.84 / len(series)
    for i, (name, heights) in enumerate(series.items()):
        places = [g + (i - (len(series) - 1) / 2) * width for g, h in enumerate(heights) if h is not None]
        drawn = ax.bar(places, [h for h in heights if h is not None], width * 0.94, label=name, color=colors[i])
        ax.bar_label(drawn, fmt=lambda h: f"{h:,.0f}" if h >= 100 else f"{h:g}", fontsize=8, padding=1)
    ax.set_xticks(range(len(groups)), groups)
    ax.grid(axis="x", visible=False)


def draw_engines(data):
    """Whole engines: tokens a second by number of adapters."""
    peers, names = read(DATA / "engines-peers.csv"), ["none", "identical", "uniform", "distinct"]
    colors = {"punica": "#c0392b", "vLLM, defaults": "#3b6ea5", "vLLM, with its LoRA options": "#8fb3d9", "Transformers + PEFT": "#999999"}
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained", sharey=True, width_ratios=[1.5, 1])
    for ax, model, title in zip(axes, ("llama2-7b", "llama3-8b"), ("Llama-2-7B", "Llama-3-8B")):
        ours = read(data / f"engines-{model}.csv")
        series = {"punica": [value(ours, "tokens_per_s", workload=w) for w in names]}
        for system in dict.fromkeys(r["system"] for r in peers if r["model"] == model):
            series[system] = [value(peers, "tokens_per_s", system=system, model=model, experiment="decodes", workload=w) for w in names]
        bars(ax, ["no adapter", "1 adapter", "8 adapters", "32 adapters"], series, [colors[s] for s in series])
        ax.set_title(title)
    axes[0].set_ylabel("output tokens per second")
    figure.suptitle("Whole engines, F16, rank 16 on all projections, 32 requests at a time, one H200")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_operator(data):
    """The paper's figure of the LoRA operator, with today's peers: Loop and Gather-BMM grow with adapters or rows."""
    ours, peers, baselines = read(data / "op.csv"), read(DATA / "operator-peers.csv"), read(DATA / "baselines.csv")
    at = {"rank": 16, "in": 4096, "out": 4096}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    marks = {"vLLM": "s", "vLLM, tuned": "D", "SGLang": "v", "SGLang, split-K": "^", "punica-ai BGMV": "P", "punica-ai SGMV": "X"}
    for ax, workload in zip(axes, ("distinct", "identical")):
        ax.plot(*pick(ours, "rows", "us", workload=workload, **at), "o-", color="#c0392b", linewidth=2, label="punica")
        for system, mark in marks.items():
            x, y = pick(peers, "rows", "us", system=system, workload=workload, **at)
            ax.plot(x, y, mark, linestyle=":", markersize=6, label=system)
        for how, name in (("gather-bmm", "Gather-BMM"), ("loop", "Loop")):
            ax.plot(*pick(baselines, "rows", "us", how=how, workload=workload, **at), "--", color="#999999",
                    marker="." if how == "loop" else "x", label=name)
        ax.plot(*pick(peers, "rows", "us", system="probe", workload=workload, **at), "k_", markersize=12, label="probe (reads only)")
        batch_axis(ax, "rows")
        ax.set_yscale("log", base=2)
        number_ticks(ax.yaxis)
        ax.set_title({"distinct": "every row another adapter (Distinct)", "identical": "one adapter (Identical)"}[workload])
    axes[0].set_ylabel("microseconds, shrink + expand")
    figure.suptitle("LoRA operator, 4096 to 4096, rank 16, F16, cold weights, one H200")
    legend_beside(figure, axes[0])
    return figure


def draw_ranks(data):
    rows = read(data / "op.csv")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    ranks = sorted({int(r["rank"]) for r in rows})
    for ax, workload in zip(axes, ("distinct", "identical")):
        for i, rank in enumerate(ranks):
            ax.plot(*pick(rows, "rows", "us", rank=rank, workload=workload, **{"in": 4096, "out": 4096}), "o-",
                    color=plt.cm.viridis(i / len(ranks)), label=f"rank {rank}")
        batch_axis(ax, "rows")
        ax.set_yscale("log", base=2)
        number_ticks(ax.yaxis)
        ax.set_title(workload.capitalize())
    axes[0].set_ylabel("microseconds, shrink + expand")
    figure.suptitle("LoRA operator by rank, 4096 to 4096, F16, cold weights, one H200")
    legend_beside(figure, axes[0])
    return figure


def draw_roofline(data):
    rows = read(data / "op.csv")
    figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for workload in WORKLOADS[1:]:
        ax.plot(*pick(rows, "flop_per_byte", "gflop_per_s", rank=16, workload=workload, **{"in": 4096, "out": 4096}), "o-",
                color=COLORS[workload], label=workload.capitalize())
    longest = max(rows, key=lambda r: float(r["bytes_us"]))             # the most significant digits
    weights = 2 * int(longest["adapters"]) * int(longest["rank"]) * (int(longest["in"]) + int(longest["out"]))
    bandwidth = weights / float(longest["bytes_us"]) / 1e3              # GB/s
    ends = ax.get_xlim()
    ends = max(ends[0], 0.5), ends[1]
    ax.plot(ends, [x * bandwidth for x in ends], "k--", label=f"memory, {bandwidth / 1e3:.2f} TB/s")
    for axis, scale in ((ax.xaxis, ax.set_xscale), (ax.yaxis, ax.set_yscale)):
        scale("log", base=2)
        number_ticks(axis)
    ax.set_xlabel("operations per byte")
    ax.set_ylabel("GFLOP/s")
    ax.set_title("SGMV roofline, 4096 to 4096, rank 16, F16, one H200")
    legend_beside(figure, ax)
    return figure


def draw_decodes(ax, rows, context, scale):
    """Draws decode time by batch for each workload, and the time for the bytes of the cheapest and the dearest."""
    for workload in WORKLOADS:
        ax.plot(*pick(rows, "batch", "us", scale, context=context, workload=workload), "o-", color=COLORS[workload],
                label="no adapter" if workload == "none" else workload.capitalize())
    for workload in ("none", "distinct"):
        ax.plot(*pick(rows, "batch", "floor_us", scale, context=context, workload=workload), "--", color=COLORS[workload],
                label="bytes alone, " + ("no adapter" if workload == "none" else "Distinct"))
    batch_axis(ax)
    ax.set_ylim(bottom=0)


def draw_step(data):
    rows = read(data / "step.csv")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for ax, context in zip(axes, (512, 2048)):
        draw_decodes(ax, rows, context, 1e-3)
        ax.set_title(f"context {context}")
    axes[0].set_ylabel("milliseconds per step")
    figure.suptitle("Decode step, Llama-2-7B, F16, rank 16, one H200")
    legend_beside(figure, axes[0])
    return figure


def draw_layer(data):
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for row, (shape, name) in zip(axes, (("llama2-7b", "Llama-2-7B"), ("llama2-13b", "Llama-2-13B"))):
        rows = read(data / f"layer-{shape}.csv")
        for ax, context in zip(row, (512, 2048)):
            draw_decodes(ax, rows, context, 1)
            ax.set_title(f"{name}, context {context}")
        row[0].set_ylabel("microseconds per layer")
    figure.suptitle("One transformer layer, decode, F16, rank 16, one H200")
    legend_beside(figure, axes[0][0])
    return figure


def draw_grid(data):
    """A decode step over its floor: contexts, workloads, and adapters of one rank beside those of many."""
    shapes = (("llama3-8b", "Llama-3-8B"), ("llama2-7b", "Llama-2-7B"), ("qwen2.5-7b", "Qwen2.5-7B"),
              ("llama2-13b", "Llama-2-13B"))
    figure, axes = plt.subplots(1, 4, figsize=(14, 4), layout="constrained", sharey=True)
    for ax, (shape, name) in zip(axes, shapes):
        rows = read(data / f"grid-{shape}-16.csv")
        for workload in ("none", "identical", "distinct"):
            ax.plot(*pick(rows, "batch", "over_floor", context=512, workload=workload), "o-", color=COLORS[workload],
                    label="no adapter" if workload == "none" else workload.capitalize() + ", rank 16")
        rows = read(data / f"grid-{shape}-contexts.csv")
        for context, line in ((2048, "o--"), (4096, "o-.")):
            ax.plot(*pick(rows, "batch", "over_floor", context=context, workload="none"), line, color=COLORS["none"],
                    label=f"no adapter, context {context}")
        rows = read(data / f"grid-{shape}-mixed.csv")
        for workload in ("uniform", "distinct"):
            ax.plot(*pick(rows, "batch", "over_floor", context=512, workload=workload), "o:", color=COLORS[workload],
                    label=workload.capitalize() + ", ranks 1 to 128")
        ax.axhline(1.25, color="black", linewidth=0.8, label="goal: 1.25")
        batch_axis(ax)
        ax.set_title(name)
    axes[0].set_ylabel("step time / time of its bytes")
    axes[0].set_ylim(bottom=1)
    figure.suptitle("Decode step over its floor, context 512 unless said, F16, one H200")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_textgen(data):
    peers, names = read(LAB / "data/textgen-peers.csv"), WORKLOADS[1:]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for ax, shape, title in zip(axes, ("llama2-7b", "llama2-13b"), ("Llama-2-7B", "Llama-2-13B")):
        series = {"punica, H200": [float(read(data / f"textgen-{shape}-{w}.csv")[0]["tokens_per_s"]) for w in names]}
        for system in ("the paper, A100", "Transformers + PEFT"):
            series[system] = [value(peers, "tokens_per_s", system=system, model=shape, workload=w) for w in names]
        bars(ax, [w.capitalize() for w in names], series, ["#c0392b", "#e6a700", "#999999"])
        ax.set_title(title)
    axes[0].set_ylabel("output tokens per second")
    figure.suptitle("Text generation: 1000 requests of the paper's lengths, 32 at a time, rank 16, F16")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_70b(data):
    projected, single = read(data / "projected-llama2-70b.csv"), read(data / "kv-llama2-70b-fp8-auto.csv")
    names = WORKLOADS[1:]
    series = {f"8 H200, {form}: projected": [value(projected, "tokens_per_s", batch=32, weights=form, workload=w) for w in names]
              for form in ("FP8", "F16")}
    series["1 H200, FP8: measured"] = [32e6 / value(single, "us", batch=32, workload=w) for w in names]
    figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
    bars(ax, [w.capitalize() for w in names], series, ["#e8b4ae", "#f3d9d5", "#c0392b"])
    ax.axhline(444, color="black", linewidth=0.8, linestyle="--", label="8 A100 40 GB, F16: the paper, 441 to 446")
    ax.set_ylabel("output tokens per second")
    ax.set_title("Llama-2-70B, batch 32, context 512, rank 16")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_cluster_hour(data):
    """The paper's cluster figure: request rate, tokens per second, and the batch of each GPU, over the same time."""
    rows = read(data / "cluster-hour.csv")
    minutes = [float(r["seconds"]) / 60 for r in rows]
    gpus = [c for c in rows[0] if c.startswith("batch_gpu")]
    figure, axes = plt.subplots(3, 1, figsize=(10, 8), layout="constrained", sharex=True, height_ratios=[1, 1, 1.8])
    for ax, column, label in zip(axes, ("requests_per_s", "tokens_per_s"), ("requests per second", "tokens per second")):
        ax.plot(minutes, [float(r[column]) for r in rows], color="#3b6ea5", linewidth=1)
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    batches = [[float(r[g]) for r in rows] for g in gpus]
    end = minutes[-1] + minutes[1] - minutes[0]
    image = axes[2].imshow(batches, aspect="auto", origin="lower", interpolation="nearest", cmap="YlGnBu", vmin=0,
                           extent=(0, end, -0.5, len(gpus) - 0.5))
    axes[2].grid(visible=False)
    axes[2].set_yticks(range(0, len(gpus), (len(gpus) + 15) // 16))
    axes[2].set_ylabel("GPU")
    axes[2].set_xlabel("minutes")
    figure.colorbar(image, ax=axes[2], label="mean batch", fraction=0.03, pad=0.01)
    figure.suptitle(f"{len(gpus)} GPUs in simulation, requests packed onto few")
    return figure


PICTURES = {
    "engines": draw_engines,
    "operator": draw_operator,
    "ranks": draw_ranks,
    "roofline": draw_roofline,
    "step": draw_step,
    "layer": draw_layer,
    "grid": draw_grid,
    "textgen": draw_textgen,
    "70b": draw_70b,
    "cluster-hour": draw_cluster_hour,
}


def draw_all(data, out, tell):
    """tell: of the pictures whose files are not there, too."""
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        try:
            figure = draw(data)
        except FileNotFoundError as missing:
            if tell:
                print(f"{name}: not drawn, there is no {missing.filename}")
            continue
        figure.savefig(out / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
        print(out / f"{name}.svg")


def main():
    plt.rcParams.update(STYLE)
    if len(sys.argv) == 3:
        draw_all(Path(sys.argv[1]), Path(sys.argv[2]), tell=True)
        return
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    draw_all(DATA, DATA.parent, tell=False)
    draw_all(LAB / "data", LAB, tell=False)


if __name__ == "__main__":
    main()
