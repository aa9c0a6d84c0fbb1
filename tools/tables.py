#!/usr/bin/env python3
"""Writes the tables of the README and of docs/results from CSV files, so that no figure is copied by hand.

    tools/tables.py [DATA]              prints every table whose files are there (DATA: docs/results/data)
    tools/tables.py --write             puts them into both pages, each below its line "<!-- table: NAME -->"
    tools/tables.py --check             fails where that would change something

DATA may also be the folder that tools/gpu/bench.sh has filled; the figures of others (*-peers.csv) are in docs/results/data.
"""
import csv
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/results/data"
PAGES = (ROOT / "README.md", ROOT / "docs/results/README.md")
SHAPES = {"llama2-7b": "7B", "llama3-8b": "8B", "qwen2.5-7b": "Qwen", "llama2-13b": "13B"}


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def cell(table, column, **wanted):
    """The column of the first row that has the wanted values, as it is written there; or nothing."""
    return next((row[column] for row in table if row[column] and all(row[k] == str(v) for k, v in wanted.items())), "")


def value(table, column, **wanted):
    """The same as a number, or None."""
    found = cell(table, column, **wanted)
    return float(found) if found else None


def digits(number, unit=1.0):
    """Three digits, or a dash."""
    if number is None:
        return "–"
    number *= unit
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def whole(number):
    return "–" if number is None else f"{number:,.0f}"


def markdown(heading, rows):
    """A row whose cells are all empty but the first is left out."""
    lines = ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows if any(cell not in ("", "–") for cell in row[1:])]
    return [re.sub(" +", " ", line) for line in lines]


def engines(data):
    """Output tokens a second of whole engines."""
    peers, table = read(DATA / "engines-peers.csv"), []
    names = {"llama2-7b": "Llama-2-7B", "llama3-8b": "Llama-3-8B", "llama2-13b": "Llama-2-13B"}
    workloads = ("none", "identical", "uniform", "distinct")
    for shape, name in names.items():
        if not (data / f"engines-{shape}.csv").exists():
            continue
        ours = read(data / f"engines-{shape}.csv")
        table.append([f"**{name}: punica**"] + [f"**{whole(value(ours, 'tokens_per_s', workload=w))}**" for w in workloads])
        for system in dict.fromkeys(r["system"] for r in peers if r["model"] == shape):
            rates = [value(peers, "tokens_per_s", system=system, model=shape, experiment="decodes", workload=w) for w in workloads]
            table.append([system] + [whole(rate) for rate in rates])
    return markdown(["", "no adapter", "1 adapter", "8 adapters", "32 adapters"], table)


def front(data):
    """Llama-2-7B of the same table, the best of each system's settings."""
    ours, peers = read(data / "engines-llama2-7b.csv"), read(DATA / "engines-peers.csv")
    workloads = ("none", "identical", "uniform", "distinct")
    table = [["**punica**"] + [f"**{whole(value(ours, 'tokens_per_s', workload=w))}**" for w in workloads]]
    for system, name in (("vLLM", "vLLM 0.26 (the better of its settings)"), ("Transformers + PEFT", "Transformers 5.17 + PEFT 0.21")):
        rates = [[float(r["tokens_per_s"]) for r in peers if r["system"].startswith(system) and r["workload"] == w and r["model"] == "llama2-7b"
                  and r["experiment"] == "decodes" and r["tokens_per_s"]] for w in workloads]
        table.append([name] + [whole(max(rate, default=None)) for rate in rates])
    table.append(["SGLang, LoRAX"] + ["not measured"] * len(workloads))
    return markdown(["tokens/s on one H200, 32 requests at a time", "no adapter", "1 adapter", "8 adapters", "32 adapters"], table)


CPU_MODELS = {"small": "28 million parameters", "tinyllama-1.1b": "TinyLlama-1.1B"}


def median(rows, column, **wanted):
    """The median of a column over all rows that have the wanted values, or None."""
    found = [float(row[column]) for row in rows if all(row[k] == str(v) for k, v in wanted.items())]
    return statistics.median(found) if found else None


def cpu(data):
    """Tokens a second on the CPU beside llama.cpp, HTTP on both sides."""
    table = []
    for shape, name in CPU_MODELS.items():
        rows = read(data / f"cpu-{shape}.csv")
        for system in ("punica", "llama.cpp"):
            at = {"system": system, "prompt_len": 32, "gen_len": 64}
            rates = [median(rows, "tokens_per_s", requests=64, at_once=32, adapters=n, **at) for n in (0, 1, 8, 64)]
            rates.append(median(rows, "tokens_per_s", at_once=1, adapters=0, **at))
            bold = "**" if system == "punica" else ""
            table.append([f"{bold}{name + ': ' if bold else ''}{system}{bold}"] + [f"{bold}{digits(rate)}{bold}" for rate in rates])
    return markdown(["tokens/s on two CPU cores", "no adapter", "1 adapter", "8 adapters", "64 adapters", "one request alone"], table)


def burst(data):
    """Requests that come all at once, on the CPU, beside llama.cpp: when they have their first tokens."""
    table = []
    for shape, requests, prompt_len, adapters in (("small", 32, 32, 0), ("small", 32, 97, 0), ("small", 17, 211, 0), ("small", 32, 32, 32),
                                                  ("tinyllama-1.1b", 32, 32, 0), ("tinyllama-1.1b", 9, 201, 0)):
        rows = read(data / f"cpu-{shape}.csv")
        at = {"requests": requests, "at_once": requests, "prompt_len": prompt_len, "gen_len": 64, "adapters": adapters}
        table.append([CPU_MODELS[shape], f"{requests} x {prompt_len}" + (f", {adapters} adapters" if adapters else "")] +
                     [", ".join(digits(median(rows, column, system=system, **at)) for system in ("punica", "llama.cpp"))
                      for column in ("first_last_s", "first_median_s", "seconds")])
    return markdown(["", "requests x tokens of a prompt", "the last first token, s: punica, llama.cpp", "the median one", "all done"], table)


def steps(data):
    """A decode step by batch, ours and vLLM's, ms."""
    peers = read(DATA / "engines-step-peers.csv")
    ours = {shape: read(data / f"engines-step-{shape}.csv") for shape in SHAPES if (data / f"engines-step-{shape}.csv").exists()}
    names = {"none": "no adapter", "identical": "Identical", "distinct": "Distinct"}

    def both(shape, batch, workload):
        mine = value(ours[shape], "us", batch=batch, workload=workload)
        theirs = cell(peers, "ms", model=shape, batch=batch, workload=workload) or "–"
        if mine is None or shape not in {row["model"] for row in peers}:
            return "" if mine is None else digits(mine, 1e-3)
        return f"{digits(mine, 1e-3)} / {theirs}"

    batches = sorted({int(row["batch"]) for rows in ours.values() for row in rows})
    return markdown(["batch"] + [f"{SHAPES[shape]} {name}" for shape in ours for name in names.values()],
                    [[str(batch)] + [both(shape, batch, w) for shape in ours for w in names] for batch in batches])


def prompts(data):
    """Workloads of long prompts beside vLLM."""
    peers, table = read(DATA / "engines-peers.csv"), []

    def line(name, rows, model, experiment, workload, rate):
        row = next(r for r in rows if r["workload"] == workload)
        mine, theirs = rate(row), value(peers, "tokens_per_s", system="vLLM, defaults", model=model, experiment=experiment, workload=workload)
        table.append([name, whole(mine), whole(theirs), f"**{mine / theirs:.2f}**" if theirs else "–"])

    def total(row):
        return int(row["requests"]) * (int(row["prompt_len"]) + int(row["gen_len"])) / float(row["seconds"])

    for shape in ("llama2-7b", "llama3-8b", "llama2-13b"):
        rows = read(data / f"engines-prompts-{shape}.csv")
        for workload, name in (("none", ""), ("uniform", ", 8 adapters")):
            line(SHAPES[shape] + name, rows, shape, "prompts", workload, total)
    rows = read(data / "engines-many.csv")
    for workload, name in (("none", ""), ("uniform", ", adapters (ours 16, vLLM 8)")):
        line("8B, 256 at once" + name, rows, "llama3-8b", "many", workload, lambda row: float(row["tokens_per_s"]))
    return markdown(["", "punica", "vLLM 0.26", "punica / vLLM"], table)


def operator(data):
    """The LoRA operator beside its peers, µs."""
    ours, peers, table = read(data / "op.csv"), read(DATA / "operator-peers.csv"), []
    cases = [(16, 1, "identical"), (16, 8, "distinct"), (16, 32, "distinct"), (16, 32, "uniform"), (16, 32, "identical"), (16, 64, "distinct"),
             (16, 64, "identical"), (64, 64, "distinct"), (128, 64, "distinct")]
    for rank, rows, workload in cases:
        at = {"in": 4096, "out": 4096, "rank": rank, "rows": rows, "workload": workload}

        def peer(system, better=None, at=at):
            found = cell(peers, "us", system=better, **at)
            return cell(peers, "us", system=system, **at) + (f" ({found})" if found else "")

        table.append([str(rank), f"{rows}" + (f" {workload.capitalize()}" if rows > 1 else ""), f"**{digits(value(ours, 'us', **at))}**",
                      peer("vLLM", "vLLM, tuned"), peer("SGLang", "SGLang, split-K"),
                      f"{peer('punica-ai BGMV')}, {peer('punica-ai SGMV')}", peer("probe")])
    return markdown(["rank", "rows, workload", "punica", "vLLM (tuned)", "SGLang (split-K)", "punica-ai BGMV, SGMV", "probe"], table)


def step_cell(rows, column, batch, context, workload):
    """One figure of the grid: a step over its floor; what Identical adds, in percent; what Distinct adds, over the time of the bytes."""
    at = {"batch": batch, "context": context}
    over, none = value(rows, "over_floor", workload=workload, **at), value(rows, "us", workload="none", **at)
    us, floor = value(rows, "us", workload=workload, **at), value(rows, "floor_us", workload=workload, **at)
    if over is None or column == "over":
        return "–" if over is None else f"{over:.2f}"
    if column == "percent":
        return f"+{100 * (us / none - 1):.1f} %"
    return f"{over:.2f}, {(us - none) / (floor - value(rows, 'floor_us', workload='none', **at)):.2f}"


def grid_of(data, kind, columns):
    """columns: (heading, context, workload, figure)."""
    files = {shape: data / f"grid-{shape}-{kind}.csv" for shape in SHAPES}
    rows = {shape: read(path) for shape, path in files.items() if path.exists()}
    if not rows:
        raise FileNotFoundError(2, "no such file", str(files["llama3-8b"]))
    batches = sorted({int(row["batch"]) for shape in rows.values() for row in shape})
    return markdown(["batch"] + [f"{SHAPES[shape]} {heading}" for shape in rows for heading, *_ in columns],
                    [[str(batch)] + [step_cell(rows[shape], figure, batch, context, workload)
                                     for shape in rows for _, context, workload, figure in columns] for batch in batches])


def grid(data):
    """Decode steps over their floor: rank 16, context 512."""
    return grid_of(data, "16", [("none", 512, "none", "over"), ("Identical", 512, "identical", "percent"),
                                ("Distinct", 512, "distinct", "bytes")])


def grid_contexts(data):
    """The same at longer contexts."""
    return grid_of(data, "contexts", [(f"{context} {name}", context, workload, "over") for context in (2048, 4096)
                                      for name, workload in (("none", "none"), ("Distinct", "distinct"))])


def grid_mixed(data):
    """The same with ranks from 1 to 128 in one batch."""
    return grid_of(data, "mixed", [("Uniform", 512, "uniform", "over"), ("Distinct", 512, "distinct", "bytes")])


def alone(data):
    """Prompts by themselves: tokens a second, and the share of what large dense products reach."""
    files = {shape: read(data / f"prompts-alone-{shape}.csv") for shape in ("llama2-7b", "llama3-8b")}
    table = [[f"{int(length):,}"] + [f"{whole(value(rows, 'tokens_per_s', len=length, adapters=n))} "
                                     f"({100 * value(rows, 'of_peak', len=length, adapters=n):.0f} %)" for rows in files.values() for n in (0, 1, 8)]
             for length in dict.fromkeys(row["len"] for row in files["llama2-7b"])]
    names = ("no adapter", "1 adapter", "8 adapters")
    return markdown(["tokens of each of 16 prompts"] + [f"{SHAPES[shape]} {name}" for shape in files for name in names], table)


def attention(data):
    """Attention of prompts by itself, TFLOP/s and the share of what large dense products reach."""
    shapes = ("llama2-7b", "llama3-8b", "qwen2.5-7b")
    rows = {shape: read(data / f"attention-{shape}.csv") + read(data / f"attention-chunk-{shape}.csv") for shape in shapes}
    table = []
    for row in rows["llama2-7b"]:
        at = {"prompt": row["prompt"], "cached": row["cached"]}
        behind = f" behind {int(row['cached']):,}" if row["cached"] != "0" else ""
        table.append([f"{int(row['prompt']):,}{behind}"] + [f"{whole(value(rows[shape], 'tflop_per_s', **at))} "
                                                            f"({100 * value(rows[shape], 'of_products', **at):.0f} %)" for shape in shapes])
    return markdown(["tokens of the prompt"] + [SHAPES[shape] for shape in shapes], table)


def beside(data):
    """Prompts beside requests that decode."""
    table = []
    for shape in ("llama2-7b", "llama3-8b"):
        for row in read(data / f"prompts-{shape}.csv"):
            table.append([SHAPES[shape], f"{int(row['prompts'])} x {int(row['len']):,}", row["adapters"], whole(float(row["tokens_per_s"])),
                          f"{100 * float(row['of_peak']):.0f} %", f"{float(row['first_mean_s']):.2f}"] +
                         [digits(float(row[column])) for column in ("quiet_ms", "gap_50_ms", "gap_99_ms")])
    return markdown(["", "prompts", "adapters", "tokens/s", "of the peak", "first token, mean s", "between tokens: without prompts, ms", "with, 50 %",
                     "99 %"], table)


TABLES = {"front": front, "cpu": cpu, "burst": burst, "engines": engines, "steps": steps, "prompts": prompts, "operator": operator, "grid": grid,
          "grid-contexts": grid_contexts, "grid-mixed": grid_mixed, "alone": alone, "attention": attention, "beside": beside}


def make_tables(data, tell):
    """The lines of each table whose files are there; tell: of the others, too."""
    tables = {}
    for name, make in TABLES.items():
        try:
            tables[name] = make(data)
        except FileNotFoundError as missing:
            if tell:
                print(f"{name}: not made, there is no {missing.filename}", file=sys.stderr)
    return tables


def with_tables(lines, tables):
    """The page with the table below each "<!-- table: NAME -->" replaced."""
    out, inside = [], False
    for line in lines:
        inside = inside and line.startswith("|")
        if not inside:
            out.append(line)
        mark = re.fullmatch(r"<!-- table: (\S+) -->", line)
        if mark and mark[1] in tables:
            out += tables[mark[1]]
            inside = True
    return out


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how not in ("--write", "--check"):
        for name, lines in make_tables(Path(how) if how else DATA, tell=True).items():
            print(f"<!-- table: {name} -->", *lines, "", sep="\n")
        return
    tables = make_tables(DATA, tell=how == "--write")
    for page in PAGES:
        before = page.read_text().splitlines()
        after = with_tables(before, tables)
        if how == "--write":
            page.write_text("\n".join(after) + "\n")
        elif after != before:
            sys.exit(f"{page.relative_to(ROOT)} does not have the figures of its data: run tools/tables.py --write")


if __name__ == "__main__":
    main()
