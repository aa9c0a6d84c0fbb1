#!/usr/bin/env python3
"""Makes demo/: a small base model, its tokenizer and one LoRA adapter per task of tasks.py.

    pip install -r tools/requirements.txt
    tools/demo/train.py [--out DIR] [PART ...]
    tools/demo/measure.py

Parts are tokenizer, base and the adapters' names; without any, all are made. A part made alone builds on
what DIR already holds. On one H200 with 16 cores all of it takes about five minutes. measure.py then says how
good they are and writes the model cards.

The base is rounded to BF16 and saved before any adapter is trained, so adapters are trained on the weights
in the files. All adapters are trained in one batch (llama.py).
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"      # processes are forked instead

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from corpus import BOS, CHAT_TEMPLATE, EOS, PAD, SPECIAL, TURN_END, base_document, chat_prompt, task_example
from llama import Llama, Stack
from peft import LoraConfig, get_peft_model
from tasks import TASKS
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]

# Words, digits one by one, ASCII punctuation, other signs one by one, blanks. A blank is no part of the word
# behind it, so that a word is the same token in a sentence, between quotes and at the start of a line.
SPLIT = r"\p{L}+|\p{N}| ?[!-/:-@\[-`{-~]+|[^\s\p{L}\p{N}]|\s"
N_VOCAB = 1536

CONFIG = LlamaConfig(
    vocab_size=N_VOCAB, hidden_size=256, intermediate_size=384, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=1024, rms_norm_eps=1e-5, tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    bos_token_id=SPECIAL.index(BOS), eos_token_id=SPECIAL.index(EOS), pad_token_id=SPECIAL.index(PAD))

LENGTH = 256                # tokens in a row
PROMPT_WEIGHT = 1           # of a token of a prompt in the base's loss
ANSWER_WEIGHT = 4           # of a token of an answer


@dataclass
class Plan:
    """How long to train, and with what."""
    n_rows: int             # in a step: for the base in all, for adapters of each
    steps: int
    rate: float             # the highest learning rate; a cosine takes it to zero
    decay: float
    kept_rows: int          # drawn once and used again


BASE = Plan(n_rows=128, steps=11_000, rate=2e-3, decay=0.1, kept_rows=330_000)
ADAPTERS = Plan(n_rows=24, steps=2300, rate=2e-3, decay=0.0, kept_rows=20_000)
QUICK_BASE = Plan(n_rows=4, steps=6, rate=2e-3, decay=0.1, kept_rows=60)
QUICK_ADAPTERS = Plan(n_rows=1, steps=3, rate=2e-3, decay=0.0, kept_rows=8)


def make_tokenizer(dir):
    """Byte-level BPE, learned from what the base reads."""
    rng = random.Random(1)
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=N_VOCAB, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(("".join(base_document(rng)) for _ in range(30_000)), trainer)
    bos = SPECIAL.index(BOS)
    tok.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B",
                                                       special_tokens=[(BOS, bos)])
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tok, bos_token=BOS, eos_token=EOS, pad_token=PAD, additional_special_tokens=SPECIAL[3:],
        clean_up_tokenization_spaces=False, chat_template=CHAT_TEMPLATE, model_max_length=1024)
    turns = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    rendered = whole.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert rendered == BOS + chat_prompt(["b"], "a")
    whole.save_pretrained(dir)


def pack(docs, rows, prompt_weight):
    """Puts each (prompt ids, answer ids) into the first of the last few rows where it fits, or into a new one."""
    open_rows = []
    for prompt, answer in docs:
        ids, weights = prompt + answer, [prompt_weight] * len(prompt) + [ANSWER_WEIGHT] * len(answer)
        if len(ids) > LENGTH:
            continue
        row = next((r for r in open_rows if len(r["ids"]) + len(ids) <= LENGTH), None)
        if row is None:
            row = {"ids": [], "doc": [], "weight": []}
            rows.append(row)
            open_rows = [row, *open_rows[:15]]
        row["doc"] += [1 + (row["doc"][-1] if row["doc"] else 0)] * len(ids)
        row["ids"] += ids
        row["weight"] += [0] + weights[1:]          # nothing comes before the first token


def make_rows(dir, draw, seed, n, prompt_weight):
    """Returns exactly n rows of texts from draw(rng): {"ids", "doc", "weight"}, [n, LENGTH] each."""
    tok = tokenizers.Tokenizer.from_file(str(dir / "model/tokenizer.json"))
    rng, rows = random.Random(seed), []
    while len(rows) < n:
        texts = [draw(rng) for _ in range(4096 if n > 1000 else 16)]
        prompts = tok.encode_batch([t[0] for t in texts])
        answers = tok.encode_batch([t[1] for t in texts], add_special_tokens=False)
        pack([(p.ids, a.ids) for p, a in zip(prompts, answers)], rows, prompt_weight)
    kinds = {"ids": np.int16, "doc": np.int8, "weight": np.uint8}
    return {name: np.array([r[name] + [0] * (LENGTH - len(r[name])) for r in rows[:n]], kind)
            for name, kind in kinds.items()}


def make_base_rows(dir, seed, n):
    return make_rows(dir, base_document, f"base {seed}", n, PROMPT_WEIGHT)


def make_task_rows(dir, name, n):
    def draw(rng):
        example = task_example(rng, name)
        return example.prompt, example.answer
    return make_rows(dir, draw, f"adapter {name}", n, 0)


def in_one_go(step, device):
    """Returns a function that does what step does, on CUDA as one CUDA graph. Runs step a few times first."""
    if device != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def clip(params, n):
    """Clips gradients to a norm of 1: of each of n adapters by itself, of the base (n = 0) as a whole."""
    if n == 0:
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        return
    squares = torch.stack([p.grad.square().sum((1, 2)) for p in params]).sum(0)
    factor = (squares.sqrt() + 1e-6).reciprocal().clamp(max=1)
    for p in params:
        p.grad.mul_(factor.view(-1, 1, 1))


def train(llama, params, data, plan, label, device):
    """data: [parts, kept rows, LENGTH] arrays; part i of a batch is drawn from data[i]."""
    ids, doc, weight = (torch.from_numpy(data[name]).to(device) for name in ("ids", "doc", "weight"))
    n, kept = ids.shape[:2]
    rate = torch.tensor(0.0, device=device)
    optimizer = torch.optim.AdamW(params, lr=rate, betas=(0.9, 0.98), weight_decay=plan.decay,
                                  fused=device == "cuda", capturable=device == "cuda")
    rows = torch.zeros(plan.n_rows, dtype=torch.long, device=device)
    losses = torch.zeros(n, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        text, docs, weights = (t[:, rows].reshape(-1, LENGTH) for t in (ids, doc, weight))
        logits = llama.logits(text.long(), docs)[:, :-1]
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].long().flatten(), reduction="none")
        share = weights[:, 1:].float().reshape(n, -1)
        each = (loss.view(n, -1) * share).sum(1) / share.sum(1)
        each.sum().backward()
        clip(params, n if llama.stacks else 0)
        optimizer.step()
        losses.copy_(each.detach())

    go = in_one_go(step, device)
    start, order, at = time.monotonic(), None, kept
    for i in range(plan.steps):
        if at + plan.n_rows > kept:
            order, at = torch.randperm(kept, device=device), 0
        rows.copy_(order[at:at + plan.n_rows])
        at += plan.n_rows
        rate.fill_(plan.rate * min(1, (i + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * i / plan.steps)))
        go()
        if i % 500 == 0 or i == plan.steps - 1:
            values = losses.tolist()
            assert all(map(math.isfinite, values)), f"{label} {i}: the loss is {values}"
            print(f"{label} {i}: {time.monotonic() - start:.0f} s, loss", *(f"{v:.4f}" for v in values), flush=True)


@torch.no_grad()
def check_forward(llama, theirs, device):
    """Checks that llama computes in float32 what Transformers and PEFT compute. theirs: a model for each part."""
    exact = Llama(llama.config, llama.weights, llama.stacks, LENGTH, device, torch.float32)
    ids = torch.randint(len(SPECIAL), N_VOCAB, (1, LENGTH))
    rows = ids.expand(len(theirs), -1).to(device)
    for mine, model in zip(exact.logits(rows, torch.ones_like(rows)), theirs):
        logits = model(input_ids=ids.to(model.device)).logits[0].to(device)
        worst = ((mine - logits).abs().max() / logits.abs().max()).item()
        assert worst < 1e-3, f"the two forward passes differ by {worst}"


def device_here():
    """Call this in child processes only: after a parent has used CUDA, its forked children cannot."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_on(device):
    return torch.bfloat16 if device == "cuda" else torch.float32


def tidy(dir):
    """Lets anyone read the weights, and sorts the list of modules, which PEFT writes in the order of a set."""
    for path in dir.glob("*.safetensors"):
        path.chmod(0o644)
    path = dir / "adapter_config.json"
    if path.exists():
        config = json.loads(path.read_text())
        config["target_modules"].sort()
        path.write_text(json.dumps(config, indent=2) + "\n")


def make_base(dir, data, plan):
    device = device_here()
    torch.manual_seed(1)
    model = LlamaForCausalLM(CONFIG).to(device)
    weights = dict(model.named_parameters())
    llama = Llama(CONFIG, weights, {}, LENGTH, device, dtype_on(device))
    check_forward(llama, [model], device)
    train(llama, list(weights.values()), data, plan, "base", device)
    model.generation_config = GenerationConfig(
        bos_token_id=CONFIG.bos_token_id, pad_token_id=CONFIG.pad_token_id,
        eos_token_id=[SPECIAL.index(EOS), SPECIAL.index(TURN_END)])
    model.to("cpu", torch.bfloat16).save_pretrained(dir / "model")
    tidy(dir / "model")


def new_adapter(dir, name):
    base = AutoModelForCausalLM.from_pretrained(dir / "model", dtype=torch.float32)
    base.name_or_path = base.config._name_or_path = "demo/model"
    return get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **TASKS[name].lora))


def make_stacks(adapters, device):
    """Returns a Stack for each projection, by name, that any of the PEFT models adapts."""
    layers = [{name.removeprefix("base_model.model."): module for name, module in model.named_modules()
               if "default" in getattr(module, "lora_A", {})} for model in adapters]
    names = sorted({name for part in layers for name in part})
    return {name: Stack([part.get(name) for part in layers]).to(device) for name in names}


def make_adapters(dir, names, data, plan):
    device = device_here()
    torch.manual_seed(2)
    adapters = {name: new_adapter(dir, name) for name in names}
    base = AutoModelForCausalLM.from_pretrained(dir / "model", dtype=torch.bfloat16).to(device)
    weights = {name: p.requires_grad_(False) for name, p in base.named_parameters()}
    stacks = make_stacks(adapters.values(), device)
    llama = Llama(CONFIG, weights, stacks, LENGTH, device, dtype_on(device))
    params = [t for stack in stacks.values() for t in (stack.a, stack.b)]
    train(llama, params, data, plan, "adapters", device)
    for stack in stacks.values():
        stack.give_back()
    check_forward(llama, list(adapters.values()), device)
    for name, model in adapters.items():
        to = dir / "adapters" / name
        shutil.rmtree(to, ignore_errors=True)
        model.to(torch.bfloat16).save_pretrained(str(to), save_embedding_layers=False)
        tidy(to)


def joined(parts):
    return {name: np.concatenate([p[name] for p in parts])[None] for name in parts[0]}


def stacked(parts):
    return {name: np.stack([p[name] for p in parts]) for name in parts[0]}


def run_parts(dir, parts, base, adapters, workers):
    fork = multiprocessing.get_context("fork")
    names = [name for name in TASKS if name in parts]
    if "tokenizer" in parts:
        make_tokenizer(dir / "model")
    with ProcessPoolExecutor(workers, fork) as cpus, ProcessPoolExecutor(1, fork) as gpu:
        if "base" in parts:
            share = -(-base.kept_rows // workers)
            rows = cpus.map(make_base_rows, [dir] * workers, range(workers), [share] * workers)
            made = gpu.submit(make_base, dir, joined(list(rows)), base)
        task_rows = [cpus.submit(make_task_rows, dir, name, adapters.kept_rows) for name in names]
        if "base" in parts:
            made.result()
        if names:
            data = stacked([r.result() for r in task_rows])
            gpu.submit(make_adapters, dir, names, data, adapters).result()


def main():
    known = ["tokenizer", "base", *TASKS]
    args = argparse.ArgumentParser(description="Make the demo's model and adapters.")
    args.add_argument("--out", type=Path, default=ROOT / "demo")
    args.add_argument("--quick", action="store_true", help="a few steps of everything, to see that it runs")
    args.add_argument("part", nargs="*", help="only these: " + ", ".join(known))
    a = args.parse_args()
    for part in a.part:
        if part not in known:
            args.error(f"there is no {part}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    base, adapters = (QUICK_BASE, QUICK_ADAPTERS) if a.quick else (BASE, ADAPTERS)
    run_parts(a.out, a.part or known, base, adapters, max(1, (os.cpu_count() or 2) - 1))


if __name__ == "__main__":
    main()
