#!/usr/bin/env python3
"""Says how good the demo's models are, and writes their model cards.

    tools/demo/measure.py [--dir DIR] [--program PROGRAM] [--count N] [-- OPTIONS]

Everything goes through `punica generate`, greedily, in one batch: the base and every adapter on held-out
sentences, raw and in chat form. Prints whose answers (rows) are right for which task (columns). Needs no
more than Python; tests/e2e/test_demo.py uses the same functions. With OPTIONS of `punica generate`, such as
--weights fp8, it measures what becomes of the models under them, and writes no cards.
"""
import argparse
import json
import random
import subprocess
from pathlib import Path

import cards
from corpus import DRILLS, Example, drill_example, story_example, task_example
from sentences import is_known, sentence, story_fits
from tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
SEED = 77
MAX_ANSWER = 160            # tokens


def demo_options(dir):
    """--model, and an --adapter for each."""
    options = ["--model", str(dir / "model")]
    for name in TASKS:
        options += ["--adapter", f"{name}={dir / 'adapters' / name}"]
    return options


def complete(command, dir, asked):
    """Returns the text of each answer; None where it did not end by itself. command: program and options. asked:
    (adapter or None, Example) pairs."""
    lines = "".join(json.dumps({"adapter": name, "prompt": e.prompt, "max_tokens": MAX_ANSWER}) + "\n"
                    for name, e in asked)
    done = subprocess.run([*command, *demo_options(dir), "--prompts", "-", "--json"], input=lines,
                          capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(asked)
    return [r["text"] if r["finish_reason"] == "stop" else None for r in results]


def is_right(name, example, text):
    """Whether text is the answer of that task, in the form that was asked for."""
    answer = TASKS[name].answer(example.order)
    return text == (answer if example.is_chat else " " + answer)


def share(truths):
    truths = list(truths)
    return sum(truths) / len(truths) if truths else 0.0


def matches(examples, texts):
    """Returns for each task the share of the examples on which its answer was given."""
    return {name: share(is_right(name, e, text) for e, text in zip(examples, texts)) for name in TASKS}


def measure_base(command, dir, count):
    """Shares: of fitting stories, of right drills, and of answers to tasks it was not asked for."""
    rng = random.Random(SEED)
    sample = Example(cards.SAMPLE, sentence(cards.SAMPLE), "", False)
    told = [story_example(rng, held_out=True) for _ in range(count)]
    drills = {name: [drill_example(rng, name, held_out=True) for _ in range(count // 2)] for name in DRILLS}
    [shown, *texts] = complete(command, dir, [(None, e) for e in sum(drills.values(), [sample, *told])])
    result = {"sample": shown.strip(" "),
              "fits": share(story_fits(e.order, (text or "").strip(" ")) for e, text in zip(told, texts)),
              "matches": matches(told, texts), "drills": {}}
    at = count
    for name, examples in drills.items():
        answers = texts[at:at + len(examples)]
        result["drills"][name] = share(e.text == text for e, text in zip(examples, answers))
        at += len(examples)
    return result


def measure_adapters(command, dir, count):
    """For each adapter its matches, and how it does with known and with invented names."""
    rng = random.Random(SEED)
    asked = [(name, task_example(rng, name, held_out=True)) for _ in range(count) for name in TASKS]
    answered = list(zip(asked, complete(command, dir, asked)))
    results = {}
    for name in TASKS:
        mine = [(e, text) for (adapter, e), text in answered if adapter == name]
        results[name] = {"matches": matches(*zip(*mine))}
        for label, wanted in (("known", True), ("invented", False)):
            results[name][label] = share(is_right(name, e, text) for e, text in mine if is_known(e.order) == wanted)
    return results


def show_row(label, result):
    print(f"{label:10}" + "".join(f"{100 * result[name]:9.1f}" for name in TASKS), flush=True)


def main():
    args = argparse.ArgumentParser(description="Measure the demo's models and write their cards.")
    args.add_argument("--dir", type=Path, default=ROOT / "demo")
    args.add_argument("--program", type=Path, default=ROOT / "build/punica")
    args.add_argument("--count", type=int, default=500, help="held-out sentences for each (500)")
    args.add_argument("options", nargs="*", help="of punica generate, after --")
    a = args.parse_args()
    command = [str(a.program), "generate", *a.options]
    base = measure_base(command, a.dir, a.count)
    adapters = measure_adapters(command, a.dir, a.count)
    if not a.options:
        cards.write_base(a.dir, base, a.count)
    print(f"base: {100 * base['fits']:.1f} % of stories fit; drills {base['drills']}")
    print(" " * 10 + "".join(f"{name[:8]:>9}" for name in TASKS))
    show_row("base", base["matches"])
    for name, result in adapters.items():
        if not a.options:
            cards.write_adapter(a.dir, name, result, a.count)
        show_row(name, result["matches"])
    for label in ("known", "invented"):
        show_row(label, {name: result[label] for name, result in adapters.items()})


if __name__ == "__main__":
    main()
