#!/usr/bin/env python3
"""Write a Hugging Face model directory of random weights, and PEFT adapters for it.

Needs numpy only. For trying the program without downloading weights, and for measuring how fast
a model of real size loads:

    tools/random_model.py --shape demo --adapters 6 --out DIR      DIR/model, DIR/adapters/*
    tools/random_model.py --shape tinyllama-1.1b --tokens 128000 --out DIR
    tools/random_model.py --shape llama2-7b --adapters 128 --rank 16 --repeat --out DIR       24 GB
"""
import argparse
import json
import pathlib
import struct

import numpy as np

SHAPES = {  # layers, hidden, heads, kv heads, head dim, ffn, vocab
    "demo": (4, 256, 8, 4, 32, 704, 384),
    "small": (8, 512, 8, 4, 64, 1408, 4096),
    "tinyllama-1.1b": (22, 2048, 32, 4, 64, 5632, 32000),
    "llama2-7b": (32, 4096, 32, 32, 128, 11008, 32000),
}


class Numbers:
    """Normally distributed numbers in F16, as bytes. With repeat, four million are drawn once for each spread, and repeated from a random place on."""

    DRAWN = 1 << 22

    def __init__(self, seed, repeat):
        self.rng, self.repeat, self.drawn = np.random.default_rng(seed), repeat, {}

    def draw(self, n, spread):
        return (self.rng.standard_normal(n, np.float32) * spread).astype(np.float16).tobytes()

    def write(self, file, n, spread):
        if not self.repeat:
            file.write(self.draw(n, spread))
            return
        if spread not in self.drawn:
            self.drawn[spread] = memoryview(self.draw(self.DRAWN, spread))
        at = int(self.rng.integers(self.DRAWN))
        while n > 0:
            end = min(self.DRAWN, at + n)
            file.write(self.drawn[spread][2 * at:2 * end])
            n, at = n - (end - at), 0


def write_safetensors(path, tensors, numbers, spread):
    """tensors: name -> shape. F16, drawn and written one at a time, so any size fits in memory."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            n = int(np.prod(shape))
            if len(shape) == 1:
                f.write(np.ones(n, np.float16).tobytes())
                continue
            if name == "lm_head.weight":    # a logit of 0 is never the largest: single bytes are not drawn, only syllables
                f.write(bytes(2 * 256 * shape[1]))
                n -= 256 * shape[1]
            numbers.write(f, n, spread(shape))


def model_tensors(layers, hidden, heads, kv, dim, ffn, vocab):
    t = {"model.embed_tokens.weight": (vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        t[p + "input_layernorm.weight"] = (hidden,)
        for name, (rows, cols) in projections(hidden, heads, kv, dim, ffn).items():
            t[f"{p}{name}.weight"] = (rows, cols)
        t[p + "post_attention_layernorm.weight"] = (hidden,)
    t["model.norm.weight"] = (hidden,)
    t["lm_head.weight"] = (vocab, hidden)
    return t


def projections(hidden, heads, kv, dim, ffn):
    return {"self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (kv * dim, hidden),
            "self_attn.v_proj": (kv * dim, hidden), "self_attn.o_proj": (hidden, heads * dim),
            "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}


def byte_alphabet():
    """The byte-level BPE alphabet: printable bytes stand for themselves, others are shifted up."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(shifted)) for b in range(256)]


def write_tokenizer(path, n_tokens, rng):
    """Byte-level BPE: the 256 bytes, then random merges of earlier entries up to n_tokens, some of
    them with a blank in front."""
    entries = byte_alphabet()
    vocab = {e: i for i, e in enumerate(entries)}
    merges = []
    letters = [e for e in entries if e.isascii() and e.islower()]
    pool = [*letters, entries[ord(" ")]]
    while len(vocab) < n_tokens - 1:
        a, b = pool[rng.integers(len(pool))], letters[rng.integers(len(letters))]
        if a + b not in vocab and len(a) < 12:
            vocab[a + b] = len(vocab)
            merges.append([a, b])
            pool.append(a + b)
    end = len(vocab)
    doc = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": end, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }
    (path / "tokenizer.json").write_text(json.dumps(doc))
    (path / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}))
    return end


def write_model(path, shape, n_tokens, numbers):
    layers, hidden, heads, kv, dim, ffn, vocab = shape
    path.mkdir(parents=True)
    end = write_tokenizer(path, n_tokens, numbers.rng)
    (path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": dim, "vocab_size": max(vocab, n_tokens), "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16", "eos_token_id": end}, indent=1))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    tensors = model_tensors(layers, hidden, heads, kv, dim, ffn, max(vocab, n_tokens))
    write_safetensors(path / "model.safetensors", tensors, numbers, lambda s: 1.2 / np.sqrt(s[1]))


def write_adapter(path, shape, rank, numbers):
    layers, hidden, heads, kv, dim, ffn, _ = shape
    path.mkdir(parents=True)
    tensors = {}
    for i in range(layers):
        for name, (rows, cols) in projections(hidden, heads, kv, dim, ffn).items():
            p = f"base_model.model.model.layers.{i}.{name}."
            tensors[p + "lora_A.weight"] = (rank, cols)
            tensors[p + "lora_B.weight"] = (rows, rank)
    write_safetensors(path / "adapter_model.safetensors", tensors, numbers, lambda s: 0.7 / np.sqrt(s[1]))
    targets = [n.split(".")[1] for n in projections(hidden, heads, kv, dim, ffn)]
    (path / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": targets, "base_model_name_or_path": "random"}, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="demo")
    parser.add_argument("--adapters", type=int, default=0, help="how many")
    parser.add_argument("--rank", type=int, help="of the adapters (4, 8, 16 and 32 in turn)")
    parser.add_argument("--tokens", type=int, default=384, help="entries of the tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", action="store_true", help="repeat four million numbers: as fast as files can be written")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    numbers = Numbers(args.seed, args.repeat)
    write_model(args.out / "model", SHAPES[args.shape], args.tokens, numbers)
    for i in range(args.adapters):
        rank = args.rank or (4, 8, 16, 32)[i % 4]
        write_adapter(args.out / "adapters" / f"adapter-{i + 1}", SHAPES[args.shape], rank, numbers)


if __name__ == "__main__":
    main()
