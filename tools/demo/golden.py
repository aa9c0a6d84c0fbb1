#!/usr/bin/env python3
"""Makes tests/golden/demo.json: what Transformers + PEFT answer with the demo's files, greedily, in float32.

    tools/demo/golden.py [--dir DIR] [--out FILE]

COUNT held-out prompts for the base and for each adapter, most of them raw, some in chat form, some of
these with a system message or an earlier turn. The file is {"versions", "cases": [...]}, one case a line:
{"adapter": null or name, "prompt": text, "ids": the prompt's tokens, "tokens": the answer's, with the end token}.

A prompt whose path has a choice that is nearly a tie (MIN_MARGIN) is left out and another one drawn, so
that a difference in tokens is an error and not a rounding. A few minutes on two cores.
"""
import argparse
import json
import os
import random
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import peft
import tokenizers
import torch
import transformers
from corpus import story_example, task_example
from peft import PeftModel
from tasks import TASKS
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
COUNT = 50
MIN_MARGIN = 1e-3           # gap between the two best logits, relative to the largest magnitude
MAX_ANSWER = 160            # tokens


def load(dir, adapter):
    model = AutoModelForCausalLM.from_pretrained(dir / "model", dtype=torch.float32)
    if adapter:
        model = PeftModel.from_pretrained(model, str(dir / "adapters" / adapter))
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model.eval()


@torch.no_grad()
def answer(model, tokenizer, prompts):
    """For each prompt its ids, the greedy tokens, and the least clear choice among them."""
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    out = model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False,
                         max_new_tokens=MAX_ANSWER, output_logits=True, return_dict_in_generate=True)
    logits = torch.stack(out.logits, 1)                             # [prompts, steps, vocabulary]
    top = logits.topk(2).values
    margins = (top[..., 0] - top[..., 1]) / logits.abs().amax(-1)
    ends = model.generation_config.eos_token_id
    for i, mask in enumerate(inputs["attention_mask"].bool()):
        tokens = out.sequences[i, mask.shape[0]:].tolist()
        n = next(at for at, token in enumerate(tokens) if token in ends) + 1
        yield inputs["input_ids"][i][mask].tolist(), tokens[:n], margins[i, :n].min().item()


def make_cases(dir, tokenizer, name):
    model, rng, cases = load(dir, name), random.Random(f"golden {name}"), []
    while len(cases) < COUNT:
        examples = [task_example(rng, name, held_out=True) if name else story_example(rng, held_out=True)
                    for _ in range(COUNT - len(cases))]
        prompts = [e.prompt for e in examples]
        for prompt, (ids, tokens, margin) in zip(prompts, answer(model, tokenizer, prompts)):
            if margin >= MIN_MARGIN:
                cases.append({"adapter": name, "prompt": prompt, "ids": ids, "tokens": tokens})
    return cases


def main():
    args = argparse.ArgumentParser(description="Make the golden answers of the demo's models.")
    args.add_argument("--dir", type=Path, default=ROOT / "demo")
    args.add_argument("--out", type=Path, default=ROOT / "tests/golden/demo.json")
    a = args.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(a.dir / "model", padding_side="left")
    cases = []
    for name in [None, *TASKS]:
        cases += make_cases(a.dir, tokenizer, name)
        print(name or "base", flush=True)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, tokenizers)}
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    a.out.write_text(f'{{"versions": {json.dumps(versions)},\n "cases": [\n{lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
