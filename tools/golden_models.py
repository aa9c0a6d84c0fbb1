#!/usr/bin/env python3
"""Makes tests/golden/models: tiny models and adapters, and what Transformers + PEFT compute with them.

    pip install -r tools/requirements.txt
    tools/golden_models.py [--out DIR] [FAMILY ...]

For each family a random model is saved by its own Transformers class, four adapters by PEFT, and
then both are loaded back from those files in float32, so that the reference sees exactly what is on
disk. DIR/<family>/ then holds

    model/              config.json, weights, tokenizer.json, generation_config.json
    adapters/<name>/    adapter_config.json, adapter_model.safetensors
    config_other.json   model/config.json as the other generation of Transformers writes it
    golden.json         {"family", "versions", "texts": [{"text", "ids"}], "cases": [...]}

A case is {"adapter": null or name, "prompt": [ids], "tokens": [48 greedy ids, eos ignored], "text": what
they add to the prompt's text, or null where that is not clear, "logits": [{"position", "values_b64"}]}.
Position p is an index into prompt + tokens; values_b64 is the little-endian float32 row of logits from
which token p + 1 is chosen.

Families with "fp8" in their name are quantised after that, in the forms people publish; the reference computes with the
dequantised weights in float32.

Random models choose between near-equal tokens more often than trained ones. Prompts are therefore
drawn until every choice on the greedy path is clear (MIN_MARGIN) and the path is no short loop
(MIN_DISTINCT), so that a difference in tokens is an error and not a rounding.
"""
import argparse
import base64
import json
import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import peft
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

N_TOKENS = 48
PROMPT_LENGTHS = [1, 7, 33, 70]
N_CANDIDATES = 6            # prompts tried at once for each length
MAX_ROUNDS = 20             # ... and how often, before it gives up
MIN_MARGIN = 1e-3           # gap between the two best logits, relative to the largest magnitude
MIN_DISTINCT = 10           # different tokens among the 48
BOS, EOS, PAD = 0, 1, 2
N_TOKENIZER = 280           # entries of the tokenizer; models may have more

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# The pre-tokenizer of Llama 3 and of Qwen, up to how many digits stand together.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "one base model and many adapters share the batch; the rows of one adapter stand together",
    "the pages of the cache hold the keys and the values of all the layers",
    "a request that outgrows the cache goes back to the caller and comes again later",
    "shrink, then expand: the sum over the input first, the sum over the rank after it",
]

TEXTS = ["the adapters share the batch", " Hello, world! 12345\n\n", "Äpfel 蜂蜜 🍯 don't"]


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


# older: model/config.json in the form Transformers 4 wrote. shard: largest weight file. fp8: what one scale of the layers'
# matrices covers.
FAMILIES = {
    "llama2": dict(
        model=LlamaForCausalLM, dtype=torch.float16, shard="60KB", older=True, bos=True, digits=None,
        config=LlamaConfig(
            vocab_size=280, hidden_size=72, intermediate_size=136, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=6, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
            rope_parameters=plain_rope(10000.0))),
    "llama3": dict(
        model=LlamaForCausalLM, dtype=torch.bfloat16, shard="50GB", older=False, bos=True, digits=3,
        config=LlamaConfig(
            vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64})),
    "mistral": dict(
        model=MistralForCausalLM, dtype=torch.bfloat16, shard="80KB", older=True, bos=True, digits=None,
        config=MistralConfig(
            vocab_size=288, hidden_size=96, intermediate_size=152, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=3, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, sliding_window=21,
            tie_word_embeddings=False, rope_parameters=plain_rope(10000.0))),
    "qwen2": dict(
        model=Qwen2ForCausalLM, dtype=torch.float32, shard="50GB", older=False, bos=False, digits=1,
        config=Qwen2Config(
            vocab_size=304, hidden_size=60, intermediate_size=100, num_hidden_layers=2, num_attention_heads=5,
            num_key_value_heads=1, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False,
            use_sliding_window=True, sliding_window=29, max_window_layers=1,    # the second layer slides
            rope_parameters=plain_rope(1000000.0))),
    "qwen3": dict(
        model=Qwen3ForCausalLM, dtype=torch.float16, shard="50GB", older=False, bos=False, digits=1,
        config=Qwen3Config(
            vocab_size=301, hidden_size=72, intermediate_size=136, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=256, rms_norm_eps=1e-6,
            tie_word_embeddings=True, rope_parameters=plain_rope(1000000.0))),
    "llama-fp8-tensor": dict(
        model=LlamaForCausalLM, dtype=torch.float16, shard="50GB", older=True, bos=True, digits=3, fp8="tensor",
        config=LlamaConfig(
            vocab_size=280, hidden_size=72, intermediate_size=136, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=3, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
            rope_parameters=plain_rope(10000.0))),
    "qwen2-fp8-channel": dict(
        model=Qwen2ForCausalLM, dtype=torch.bfloat16, shard="50GB", older=False, bos=False, digits=1, fp8="channel",
        config=Qwen2Config(
            vocab_size=280, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True,
            rope_parameters=plain_rope(1000000.0))),
    "qwen3-fp8-block": dict(
        model=Qwen3ForCausalLM, dtype=torch.bfloat16, shard="50GB", older=False, bos=False, digits=1, fp8="block",
        config=Qwen3Config(
            vocab_size=280, hidden_size=192, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=64, max_position_embeddings=256, rms_norm_eps=1e-6,
            tie_word_embeddings=False, rope_parameters=plain_rope(1000000.0))),
}

FP8_MAX = 448
FP8_BLOCK = 128

ADAPTERS = {
    "all": dict(r=8, lora_alpha=16, target_modules=PROJECTIONS),
    "qv-rslora": dict(r=16, lora_alpha=12, use_rslora=True, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(
        r=4, lora_alpha=6, target_modules=r".*\.(self_attn\.[qkvo]|mlp\.down)_proj",
        rank_pattern={r"layers\.1\.self_attn\.(q|v)_proj": 10, "q_proj": 6, "0.mlp.down_proj": 1},  # first match wins
        alpha_pattern={"o_proj": 20, r"layers\.0\.self_attn\.(q|k)_proj": 3}),
    "mlp-last": dict(r=3, lora_alpha=3, target_modules=["gate_proj", "up_proj", "down_proj"]),  # of the last layer
}

ADAPTER_DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make_tokenizer(digits, bos):
    """A byte-level BPE: GPT-2's split when digits is None, else that of Llama 3 and Qwen."""
    tok = tokenizers.Tokenizer(models.BPE())
    if digits is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(SPLIT % digits), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=N_TOKENIZER, special_tokens=["<s>", "</s>", "<pad>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator(CORPUS, trainer)
    assert tok.get_vocab_size() == N_TOKENIZER
    if bos:
        tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                           special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   clean_up_tokenization_spaces=False)


def random_weight(name, shape, gen):
    """Weights under which attention is selective and logits spread over several units."""
    noise = torch.randn(shape, generator=gen)
    if name.endswith("bias"):
        return 0.3 * noise
    if len(shape) == 1:
        weight = 1 + 0.2 * noise
        # With tied embeddings a token's own logit would win without these signs: a loop of one token.
        return weight * torch.randn(shape, generator=gen).sign() if name == "model.norm.weight" else weight
    if "embed_tokens" in name:
        return 0.4 * noise
    return (2.5 if "lm_head" in name else 1.5) * noise / shape[1] ** 0.5


def save_model(spec, gen, dir):
    model = spec["model"](spec["config"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(random_weight(name, p.shape, gen))
    model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id = BOS, EOS, PAD
    model.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=[EOS, PAD], pad_token_id=PAD)
    model.to(spec["dtype"]).save_pretrained(dir, max_shard_size=spec["shard"])


def fp8_scales(weight, kind):
    """The scale of every element of a matrix, and the scales as they are stored."""
    if kind == "tensor":
        stored = weight.abs().max().reshape(1) / FP8_MAX
        return stored.expand_as(weight), stored
    if kind == "channel":
        stored = (weight.abs().amax(1, keepdim=True) / FP8_MAX).to(torch.bfloat16)
        return stored.float().expand_as(weight), stored
    rows, cols = (-(-n // FP8_BLOCK) for n in weight.shape)
    padded = torch.zeros(rows * FP8_BLOCK, cols * FP8_BLOCK)
    padded[:weight.shape[0], :weight.shape[1]] = weight.abs()
    stored = padded.reshape(rows, FP8_BLOCK, cols, FP8_BLOCK).amax((1, 3)) / FP8_MAX
    spread = stored.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    return spread[:weight.shape[0], :weight.shape[1]], stored


def quantise(weight, kind):
    """Returns the FP8 numbers and scales of a matrix, and the values that they stand for."""
    scale, stored = fp8_scales(weight, kind)
    small = (weight / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return small, stored, small.float() * scale


def quantise_model(spec, root):
    """Makes model/ an FP8 checkpoint; dequantised/ has its dequantised weights until the golden data are made."""
    kind, path = spec["fp8"], root / "model/model.safetensors"
    suffix = "weight_scale_inv" if kind == "block" else "weight_scale"
    stored, meant = {}, {}
    for name, weight in safetensors.torch.load_file(path).items():
        stored[name], meant[name] = weight, weight.float()
        if ".layers." in name and name.endswith("_proj.weight"):
            module = name.removesuffix("weight")
            stored[name], stored[module + suffix], meant[name] = quantise(weight.float(), kind)
            if kind == "tensor":        # a static scheme: it has scales for activations too
                stored[module + "input_scale"] = torch.tensor([0.05])
    shutil.copytree(root / "model", root / "dequantised")
    safetensors.torch.save_file(stored, path, metadata={"format": "pt"})
    safetensors.torch.save_file(meant, root / "dequantised/model.safetensors", metadata={"format": "pt"})


def quantization_config(kind):
    if kind == "block":
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                "weight_block_size": [FP8_BLOCK, FP8_BLOCK], "modules_to_not_convert": ["lm_head"]}
    numbers = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "block_structure": None}
    group = {"targets": ["Linear"], "output_activations": None, "weights": dict(numbers, strategy=kind, dynamic=False),
             "input_activations": dict(numbers, strategy="tensor" if kind == "tensor" else "token", dynamic=kind != "tensor")}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None}


def finish_quantised(spec, root):
    for path in (root / "model/config.json", root / "config_other.json"):
        write_json(path, dict(json.loads(path.read_text()), quantization_config=quantization_config(spec["fp8"])))
    shutil.rmtree(root / "dequantised")


def older_config(new):
    """config.json as Transformers 4 wrote it for the same model."""
    old = {k: v for k, v in new.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    rope = dict(new["rope_parameters"])
    old["rope_theta"] = rope.pop("rope_theta")
    old["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    old["torch_dtype"] = new["dtype"]
    old["transformers_version"] = "4.51.0"
    if old.get("head_dim") == old["hidden_size"] // old["num_attention_heads"]:
        del old["head_dim"]         # it was written only where it differs
    return dict(sorted(old.items()))


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_configs(spec, root):
    new = json.loads((root / "model/config.json").read_text())
    assert "rope_parameters" in new and "dtype" in new, "this Transformers writes another form of config.json"
    forms = [new, older_config(new)]
    write_json(root / "model/config.json", forms[spec["older"]])
    write_json(root / "config_other.json", forms[not spec["older"]])


def load_model(root, **changes):
    dir = root / "dequantised" if (root / "dequantised").exists() else root / "model"
    model = AutoModelForCausalLM.from_pretrained(dir, dtype=torch.float32, attn_implementation="eager",
                                                 **changes)
    return model.eval()


def save_adapter(root, settings, dtype, gen, dir):
    """Saves an adapter by PEFT; A and B are random, their product about half as strong as the base's output."""
    model = get_peft_model(load_model(root), LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for module in model.modules():
            if "default" not in getattr(module, "lora_A", {}):
                continue
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            strength = 0.7 / (b.shape[1] ** 0.5 * module.scaling["default"])
            a.data = (torch.randn(a.shape, generator=gen) / a.shape[1] ** 0.5).to(dtype)
            b.data = (torch.randn(b.shape, generator=gen) * strength).to(dtype)
    model.save_pretrained(str(dir), save_embedding_layers=False)
    (dir / "README.md").unlink(missing_ok=True)
    saved = json.loads((dir / "adapter_config.json").read_text())
    saved["base_model_name_or_path"] = "punica-golden/" + root.name
    if isinstance(saved["target_modules"], list):
        saved["target_modules"].sort()          # PEFT keeps a set: its order differs from run to run
    write_json(dir / "adapter_config.json", saved)


def save_adapters(root, family_index, n_layers, gen):
    for i, (name, settings) in enumerate(ADAPTERS.items()):
        if name == "mlp-last":
            settings = dict(settings, layers_to_transform=[n_layers - 1])
        dtype = ADAPTER_DTYPES[(family_index + i) % len(ADAPTER_DTYPES)]
        save_adapter(root, settings, dtype, gen, root / "adapters" / name)


@torch.no_grad()
def logits_of(model, ids):
    """[batch, len, vocab] of equally long sequences, without a cache."""
    return model(input_ids=torch.tensor(ids), use_cache=False).logits


def greedy(model, prompts):
    """N_TOKENS greedy tokens for each of some equally long prompts."""
    ids = [list(p) for p in prompts]
    for _ in range(N_TOKENS):
        best = logits_of(model, ids)[:, -1].argmax(-1).tolist()
        ids = [seq + [t] for seq, t in zip(ids, best)]
    return [seq[len(prompts[0]):] for seq in ids]


def margin(rows):
    """The least clear choice in [n, vocab] logits."""
    top = rows.topk(2).values
    return ((top[:, 0] - top[:, 1]) / rows.abs().amax(-1)).min().item()


def added_text(tokenizer, prompt, tokens):
    """What the tokens add to the prompt's text; None when the prompt ends inside a character."""
    before, after = (tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                     for ids in (prompt, prompt + tokens))
    return None if before.endswith("\ufffd") else after.removeprefix(before)


def make_case(model, tokenizer, adapter, prompt, tokens):
    """Returns the case, or None when its path is not clear, judged by one pass over the whole sequence."""
    first = len(prompt) - 1
    rows = logits_of(model, [prompt + tokens[:-1]])[0, first:]
    if rows.argmax(-1).tolist() != tokens or margin(rows) < MIN_MARGIN or len(set(tokens)) < MIN_DISTINCT:
        return None
    logits = [{"position": first + i,
               "values_b64": base64.b64encode(rows[i].numpy().astype("<f4").tobytes()).decode()}
              for i in (0, N_TOKENS // 3, N_TOKENS - 1)]
    return {"adapter": adapter, "prompt": prompt, "tokens": tokens,
            "text": added_text(tokenizer, prompt, tokens), "logits": logits}


def find_case(base, model, tokenizer, adapter, length, gen):
    for _ in range(MAX_ROUNDS):
        prompts = torch.randint(PAD + 1, N_TOKENIZER, (N_CANDIDATES, length), generator=gen).tolist()
        for prompt, tokens in zip(prompts, greedy(model, prompts)):
            case = make_case(model, tokenizer, adapter, prompt, tokens)
            if case and (adapter is None or greedy(base, [prompt]) != [tokens]):
                return case
    raise SystemExit(f"{adapter or 'base'}: no clear prompt of {length} tokens; take another seed")


def make_cases(root, tokenizer, gen):
    base, cases = load_model(root), []
    for name in [None, *ADAPTERS]:
        model = load_model(root)
        if name:
            model = PeftModel.from_pretrained(model, str(root / "adapters" / name)).eval()
        assert all(p.dtype == torch.float32 for p in model.parameters())
        for length in PROMPT_LENGTHS:
            cases.append(find_case(base, model, tokenizer, name, length, gen))
    return cases


def check_feature_matters(root, case, **changes):
    """A model without one of its features must compute something else, or nothing tests that feature."""
    ids = [case["prompt"] + case["tokens"]]
    diff = (logits_of(load_model(root), ids) - logits_of(load_model(root, **changes), ids)).abs().max().item()
    assert diff > 0.1, f"{root.name}: {changes} changes logits by only {diff}"


def check_other_config(root, case):
    other = AutoConfig.from_pretrained(root / "config_other.json")
    ids = [case["prompt"] + case["tokens"]]
    assert torch.equal(logits_of(load_model(root), ids), logits_of(load_model(root, config=other), ids))


def check_features(root, config, case):
    if config.rope_parameters["rope_type"] != "default":
        check_feature_matters(root, case, rope_parameters=plain_rope(config.rope_parameters["rope_theta"]))
    if getattr(config, "sliding_window", None):
        n = config.num_hidden_layers
        all_full = {"layer_types": ["full_attention"] * n} if getattr(config, "layer_types", None) else {}
        check_feature_matters(root, case, sliding_window=None, **all_full)


def lines_of(items):
    """A JSON array, one item a line, so that a change shows where it is."""
    return "[\n" + ",\n".join("  " + json.dumps(item) for item in items) + "\n ]"


def write_golden(path, family, tokenizer, cases):
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, tokenizers, safetensors, np)}
    texts = [{"text": t, "ids": tokenizer.encode(t)} for t in TEXTS]
    path.write_text(f'{{"family": {json.dumps(family)},\n "versions": {json.dumps(versions)},\n'
                    f' "texts": {lines_of(texts)},\n "cases": {lines_of(cases)}\n}}\n')


def make_family(name, index, root):
    spec = FAMILIES[name]
    shutil.rmtree(root, ignore_errors=True)
    gen = torch.Generator().manual_seed(1000 + index)
    save_model(spec, gen, root / "model")
    tokenizer = make_tokenizer(spec["digits"], spec["bos"])
    tokenizer.save_pretrained(root / "model")
    write_configs(spec, root)
    if "fp8" in spec:
        quantise_model(spec, root)
    save_adapters(root, index, spec["config"].num_hidden_layers, gen)
    cases = make_cases(root, tokenizer, gen)
    longest = cases[len(PROMPT_LENGTHS) - 1]
    check_features(root, spec["config"], longest)
    check_other_config(root, longest)
    if "fp8" in spec:
        finish_quantised(spec, root)
    write_golden(root / "golden.json", name, tokenizer, cases)
    print(f"{name}: {len(cases)} cases", flush=True)


def main():
    args = argparse.ArgumentParser(description="Make the golden models of tests/golden/models.")
    args.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "tests/golden/models")
    args.add_argument("family", nargs="*", help="only these: " + ", ".join(FAMILIES))
    a = args.parse_args()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for index, name in enumerate(FAMILIES):
        if not a.family or name in a.family:
            make_family(name, index, a.out / name)


if __name__ == "__main__":
    main()
