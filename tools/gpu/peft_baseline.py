#!/usr/bin/env python3
"""Text generation by Transformers + PEFT on the GPU, to stand beside `punica bench textgen`.

    tools/gpu/peft_baseline.py [--shape llama2-7b|llama2-13b] [--new-tokens N]

A Llama-2 of random FP16 weights, prompts of 32 tokens, greedy. Tokens per second for: the base model
at batch 32; one adapter of rank 16 on all seven projections at batch 32 (Identical); and Distinct, where
every request wants its own adapter: once as one batch with an adapter name for each row, and once one
request at a time; the faster of these is what PEFT can do. The best of three runs each.
"""
import argparse
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BATCH, PROMPT, RANK = 32, 32, 16
SHAPES = {
    "llama2-7b": dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32),
    "llama2-13b": dict(hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40),
}


def make_model(shape):
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=4096, **SHAPES[shape])
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def tokens_per_second(model, n, new_tokens, **more):
    ids = torch.randint(3, 32000, (n, PROMPT), device="cuda")
    mask = torch.ones_like(ids)

    def run(count):
        model.generate(input_ids=ids, attention_mask=mask, min_new_tokens=count, max_new_tokens=count, do_sample=False,
                       pad_token_id=0, **more)
        torch.cuda.synchronize()

    run(4)
    seconds = []
    for _ in range(3):
        start = time.time()
        run(new_tokens)
        seconds.append(time.time() - start)
    return n * new_tokens / min(seconds)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="llama2-7b")
    parser.add_argument("--new-tokens", type=int, default=64)
    args = parser.parse_args()
    n = args.new_tokens
    model = make_model(args.shape)
    print(f"none       batch {BATCH}: {tokens_per_second(model, BATCH, n):8.1f} tokens/s", flush=True)
    config = LoraConfig(r=RANK, target_modules=PROJECTIONS, init_lora_weights=False)
    model = get_peft_model(model, config, adapter_name="0").eval()
    print(f"identical  batch {BATCH}: {tokens_per_second(model, BATCH, n):8.1f} tokens/s", flush=True)
    alone = tokens_per_second(model, 1, n)
    print(f"distinct   one by one: {alone:8.1f} tokens/s", flush=True)
    for i in range(1, BATCH):
        model.add_adapter(str(i), config)
    names = [str(i) for i in range(BATCH)]
    mixed = tokens_per_second(model, BATCH, max(n // 8, 4), adapter_names=names)
    print(f"distinct   batch {BATCH}: {mixed:8.1f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
