"""Bad files: every malformed model or adapter directory ends in one line on stderr and exit code 2.

Each case starts from a small model and adapter that the program accepts (test_good_* prove it) and
breaks one thing. Model cases run `punica generate`, adapter cases `punica adapter check`.
"""
import json
import random
import struct
import time

import pytest

HIDDEN, HEADS, KV, DIM, FFN, VOCAB, LAYERS, RANK = 16, 2, 1, 8, 24, 272, 2, 4
MAX_SECONDS = 10
WIDTH = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "I64": 8, "F8_E4M3": 1}


class Tensors:
    """A safetensors file in the making: {name: [dtype, shape, bytes]}, and ways to break its packing."""

    def __init__(self, seed):
        self.random, self.all = random.Random(seed), {}
        self.edit_header = lambda header: None          # changes the header's dict in place
        self.header_text = None                         # stands for the whole header
        self.edit_bytes = lambda data: data             # the packed file to what is written

    def add(self, name, *shape, dtype="F32", data=None):
        n = 1
        for d in shape:
            n *= d
        if data is None:
            values = [self.random.uniform(-0.5, 0.5) for _ in range(n)]
            data = {"F32": lambda: struct.pack(f"<{n}f", *values), "F16": lambda: struct.pack(f"<{n}e", *values),
                    "BF16": lambda: b"".join(struct.pack("<f", v)[2:] for v in values),
                    "F8_E4M3": lambda: bytes(self.random.randrange(127) for _ in range(n)),
                    }.get(dtype, lambda: bytes(n * WIDTH[dtype]))()
        self.all[name] = [dtype, list(shape), data]

    def poke(self, name, at, data):
        """Overwrite bytes of one tensor."""
        old = self.all[name][2]
        self.all[name][2] = old[:at] + data + old[at + len(data):]

    def pack(self):
        header, body = {}, b""
        for name, (dtype, shape, data) in self.all.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        self.edit_header(header)
        text = json.dumps(header).encode() if self.header_text is None else self.header_text
        text += b" " * (-len(text) % 8)
        return self.edit_bytes(struct.pack("<Q", len(text)) + text + body)


PROJECTIONS = {"self_attn.q_proj": (HEADS * DIM, HIDDEN), "self_attn.k_proj": (KV * DIM, HIDDEN),
               "self_attn.v_proj": (KV * DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * DIM),
               "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN)}
LAYER0_Q = "model.layers.0.self_attn.q_proj.weight"
LORA0 = "base_model.model.model.layers.0.self_attn.q_proj."


def byte_symbols():
    """The characters byte-level BPE writes for the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = {b: chr(b) for b in shown}, 0
    for b in range(256):
        if b not in symbols:
            symbols[b], extra = chr(256 + extra), extra + 1
    return [symbols[b] for b in range(256)]


class Model:
    """config.json, tokenizer.json and weights; `files` adds or replaces whole files (None: absent)."""

    def __init__(self):
        self.config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                       "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
                       "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM, "vocab_size": VOCAB,
                       "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                       "torch_dtype": "float32", "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": 257}
        vocab = {s: i for i, s in enumerate(byte_symbols())}
        vocab["hi"] = 256
        self.tokenizer = {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": 257, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": ["h i"]}}
        self.tensors, self.files = Tensors(1), {}
        t = self.tensors
        t.add("model.embed_tokens.weight", VOCAB, HIDDEN)
        t.add("lm_head.weight", VOCAB, HIDDEN)
        t.add("model.norm.weight", HIDDEN)
        for i in range(LAYERS):
            t.add(f"model.layers.{i}.input_layernorm.weight", HIDDEN)
            t.add(f"model.layers.{i}.post_attention_layernorm.weight", HIDDEN)
            for name, shape in PROJECTIONS.items():
                t.add(f"model.layers.{i}.{name}.weight", *shape)

    def write(self, root):
        write_all(root, {"config.json": json.dumps(self.config), "tokenizer.json": json.dumps(self.tokenizer),
                         "model.safetensors": self.tensors.pack, **self.files})
        return root

    def shard(self, edit=lambda weight_map: None):
        """Cut into two files with an index, which `edit` may change."""
        first, second = Tensors(0), Tensors(0)
        for name, tensor in self.tensors.all.items():
            (second if ".layers.1." in name else first).all[name] = tensor
        weight_map = {**dict.fromkeys(first.all, "one.safetensors"), **dict.fromkeys(second.all, "two.safetensors")}
        self.files = {"model.safetensors": None, "one.safetensors": first.pack(), "two.safetensors": second.pack()}
        edit(weight_map)
        self.files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map})


class Adapter:
    def __init__(self):
        self.config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"],
                       "bias": "none", "task_type": "CAUSAL_LM", "base_model_name_or_path": "test/base",
                       "lora_dropout": 0.0, "modules_to_save": None, "use_dora": False, "init_lora_weights": True}
        self.tensors, self.files = Tensors(2), {}
        for i in range(LAYERS):
            for name in ("self_attn.q_proj", "mlp.down_proj"):
                out, inner = PROJECTIONS[name]
                self.tensors.add(f"base_model.model.model.layers.{i}.{name}.lora_A.weight", RANK, inner)
                self.tensors.add(f"base_model.model.model.layers.{i}.{name}.lora_B.weight", out, RANK)

    def write(self, root):
        write_all(root, {"adapter_config.json": json.dumps(self.config),
                         "adapter_model.safetensors": self.tensors.pack, **self.files})
        return root


class Directory:
    """In place of a file's content."""


class LinkLoop:
    """In place of a file's content: a symbolic link to itself."""


def write_all(root, files):
    root.mkdir()
    for name, content in files.items():
        path = root / name
        if content is Directory:
            path.mkdir()
        elif content is LinkLoop:
            path.symlink_to(name)
        elif content is not None:
            content = content() if callable(content) else content
            path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def base(tmp_path):
    return Model().write(tmp_path / "base")


def generate(model, *more):
    return ["generate", "--model", model, "--prompt", "hi", "--max-tokens", "2", "--threads", "1", *more]


def refused(punica, args, word):
    start = time.monotonic()
    line = punica.refuses(*args)
    assert time.monotonic() - start < MAX_SECONDS
    assert word in line


# The good files.

def test_good_model(punica, base):
    done = punica(*generate(base))
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_good_shards(punica, tmp_path):
    model = Model()
    model.shard()
    done = punica(*generate(model.write(tmp_path / "base")))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_good_half_precision(punica, tmp_path, dtype):
    model = Model()
    for name, (_, shape, _) in list(model.tensors.all.items()):
        model.tensors.add(name, *shape, dtype=dtype)
    done = punica(*generate(model.write(tmp_path / "base")))
    assert done.returncode == 0, done.stderr


def test_good_adapter(punica, tmp_path, base):
    adapter = Adapter().write(tmp_path / "mine")
    done = punica("adapter", "check", adapter, "--model", base)
    assert done.returncode == 0 and not done.stderr
    assert "rank        4\n" in done.stdout and "scale       2\n" in done.stdout
    done = punica("adapter", "check", adapter, "--model", base, "--json")
    report = json.loads(done.stdout)
    assert report["fits"] and report["base_weights"] == "F32" and report["ranks"]["q_proj"] == [4, 4] and report["ranks"]["k_proj"] == [0, 0]
    done = punica(*generate(base, "--adapter", f"mine={adapter}"))
    assert done.returncode == 0, done.stderr


# Cases: functions that break a Model or an Adapter, with a word the message must have.

MODEL_CASES, ADAPTER_CASES = [], []


def model_case(word):
    return lambda broken: MODEL_CASES.append(pytest.param(broken, word, id=broken.__name__)) or broken


def adapter_case(word):
    return lambda broken: ADAPTER_CASES.append(pytest.param(broken, word, id=broken.__name__)) or broken


def packing_case(word):
    """A case of the file format: the same for a model and for an adapter."""
    return lambda broken: adapter_case(word)(model_case(word)(broken))


@packing_case("truncated")
def data_truncated(m):
    m.tensors.edit_bytes = lambda data: data[:-5]


@packing_case("truncated")
def header_truncated(m):
    m.tensors.edit_bytes = lambda data: data[:100]


@packing_case("only 0 bytes")
def weights_empty(m):
    m.tensors.edit_bytes = lambda data: b""


@packing_case("only 4 bytes")
def weights_of_four_bytes(m):
    m.tensors.edit_bytes = lambda data: data[:4]


@packing_case("header length")
def header_length_huge(m):
    m.tensors.edit_bytes = lambda data: b"\xff" * 8 + data[8:]


@packing_case("header length")
def header_length_past_the_end(m):
    m.tensors.edit_bytes = lambda data: struct.pack("<Q", len(data)) + data[8:]


@packing_case("JSON")
def header_length_zero(m):
    m.tensors.edit_bytes = lambda data: bytes(8) + data[8:]


@packing_case("JSON")
def header_not_json(m):
    m.tensors.header_text = b"GGUF is another format"


@packing_case("not a JSON object")
def header_is_a_list(m):
    m.tensors.header_text = b"[1, 2, 3]"


@packing_case("depth")
def header_deep(m):
    m.tensors.header_text = b'{"a":' * 100_000


@packing_case("JSON")
def header_not_utf8(m):
    m.tensors.header_text = b'{"\xff\xfe": 1}'


@packing_case("NUL")
def header_name_with_nul(m):
    m.tensors.header_text = b'{"a\\u0000b": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}'


def edit_first(m, **changes):
    def edit(header):
        next(iter(header.values())).update(changes)
    m.tensors.edit_header = edit


@packing_case("duplicate")
def tensor_twice(m):
    m.tensors.edit_bytes = lambda data: data.replace(b"layers.1.self_attn.q_proj", b"layers.0.self_attn.q_proj")


@packing_case("overlaps")
def tensors_overlap(m):
    def edit(header):
        infos = list(header.values())
        for info in infos[1:]:
            info["data_offsets"] = [o - 4 for o in info["data_offsets"]]
    m.tensors.edit_header = edit
    m.tensors.edit_bytes = lambda data: data[:-4]


@packing_case("hole")
def tensors_with_hole(m):
    def edit(header):
        for info in list(header.values())[1:]:
            info["data_offsets"] = [o + 4 for o in info["data_offsets"]]
    m.tensors.edit_header = edit
    m.tensors.edit_bytes = lambda data: data + bytes(4)


@packing_case("belong to no tensor")
def trailing_bytes(m):
    m.tensors.edit_bytes = lambda data: data + b"more"


@packing_case("out of range")
def offsets_out_of_range(m):
    edit_first(m, data_offsets=[1 << 40, (1 << 40) + 4])


@packing_case("end before they begin")
def offsets_reversed(m):
    edit_first(m, data_offsets=[64, 0])


@packing_case("data_offsets")
def offsets_not_numbers(m):
    edit_first(m, data_offsets=["0", "64"])


@packing_case("0 or more")
def shape_negative(m):
    edit_first(m, shape=[-16, 16])


@packing_case("too large")
def shape_overflows(m):
    edit_first(m, shape=[1 << 62, 1 << 62])


@packing_case("overflow")
def shape_number_giant(m):
    m.tensors.header_text = b'{"a": {"dtype": "F32", "shape": [' + b"9" * 400 + b'], "data_offsets": [0, 4]}}'


@packing_case("8 dimensions")
def shape_long(m):
    edit_first(m, shape=[1] * 1000)


@packing_case("unknown dtype")
def dtype_unknown(m):
    edit_first(m, dtype="Q4_K")


@packing_case("by its data_offsets")
def dtype_does_not_match_size(m):
    edit_first(m, dtype="F64")


@packing_case("__metadata__")
def metadata_not_text(m):
    m.tensors.edit_header = lambda header: header.update(__metadata__={"format": 1})


@packing_case("tensor")
def tensor_name_giant(m):
    m.tensors.add("x" * 5_000_000, 2)


@packing_case("not aligned")
def data_not_aligned(m):
    def edit(data):
        (n,) = struct.unpack("<Q", data[:8])
        return struct.pack("<Q", n + 1) + data[8:8 + n] + b" " + data[8 + n:]
    m.tensors.edit_bytes = edit


# Base weights.

@model_case("NaN")
def weight_is_nan(m):
    m.tensors.poke("model.layers.1.mlp.down_proj.weight", 40, struct.pack("<f", float("nan")))


@model_case("layers.0.self_attn.q_proj")
def weight_is_infinite_half(m):
    m.tensors.add(LAYER0_Q, HEADS * DIM, HIDDEN, dtype="F16")
    m.tensors.poke(LAYER0_Q, 2, b"\x00\xfc")


@model_case("model.norm.weight")
def norm_is_nan_bfloat(m):
    m.tensors.add("model.norm.weight", HIDDEN, dtype="BF16")
    m.tensors.poke("model.norm.weight", 0, b"\xc0\x7f")


@model_case("by config.json it must be [16, 16]")
def weight_of_wrong_shape(m):
    m.tensors.add(LAYER0_Q, HEADS * DIM, HIDDEN + 2)


@model_case("it must be [272, 16]")
def vocabulary_of_wrong_size(m):
    m.tensors.add("model.embed_tokens.weight", VOCAB - 1, HIDDEN)


@model_case("must be [16]")
def norm_of_two_dimensions(m):
    m.tensors.add("model.norm.weight", 1, HIDDEN)


@model_case("is I8")
def weight_of_integers(m):
    m.tensors.add(LAYER0_Q, HEADS * DIM, HIDDEN, dtype="I8")


def make_fp8(m, strategy="channel", **changes):
    """The projections as compressed-tensors stores them, one scale for each row or each matrix."""
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **changes}
    m.config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                                       "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    for i in range(LAYERS):
        for name, shape in PROJECTIONS.items():
            m.tensors.add(f"model.layers.{i}.{name}.weight", *shape, dtype="F8_E4M3")
            scale = [shape[0], 1] if strategy == "channel" else [1]
            m.tensors.add(f"model.layers.{i}.{name}.weight_scale", *scale)


@pytest.mark.parametrize("strategy", ["channel", "tensor"])
def test_good_fp8(punica, tmp_path, strategy):
    model = Model()
    make_fp8(model, strategy)
    done = punica(*generate(model.write(tmp_path / "base")))
    assert done.returncode == 0, done.stderr


@model_case("only F32, F16 and BF16 are supported")
def fp8_without_config(m):
    m.tensors.add(LAYER0_Q, HEADS * DIM, HIDDEN, dtype="F8_E4M3")


@model_case("weight_scale\" is missing")
def fp8_scale_missing(m):
    make_fp8(m)
    del m.tensors.all["model.layers.1.mlp.up_proj.weight_scale"]


@model_case("by config.json it must be [16, 1]")
def fp8_scale_of_wrong_shape(m):
    make_fp8(m)
    m.tensors.add("model.layers.0.self_attn.q_proj.weight_scale", 1)


@model_case("weight_scale\" holds NaN or infinity")
def fp8_scale_not_finite(m):
    make_fp8(m)
    m.tensors.poke("model.layers.0.self_attn.q_proj.weight_scale", 0, b"\x00\x00\x80\x7f")


@model_case("q_proj.weight\" holds NaN or infinity")
def fp8_weight_not_finite(m):
    make_fp8(m)
    m.tensors.poke(LAYER0_Q, 5, b"\xff")


@model_case("weights of type \"float\" and 4 bits")
def fp4_weights(m):
    make_fp8(m, num_bits=4)


@model_case("\"strategy\" \"group\" of weights is not supported")
def fp8_by_group(m):
    make_fp8(m, strategy="group")



@model_case("\"weight_block_size\" must be [128, 128]")
def fp8_other_blocks(m):
    m.config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [64, 64]}


@model_case("missing")
def weight_missing(m):
    del m.tensors.all["model.layers.1.mlp.up_proj.weight"]


@model_case("lm_head.weight")
def head_missing(m):
    del m.tensors.all["lm_head.weight"]


@model_case("no place")
def weight_unexpected(m):
    m.tensors.add("model.layers.0.self_attn.q_proj.bias", HEADS * DIM)


@model_case("model.layers.2.")
def layers_too_many(m):
    m.tensors.add("model.layers.2.input_layernorm.weight", HIDDEN)


@model_case("missing")
def layers_too_few(m):
    m.config["num_hidden_layers"] = 3


@model_case("no tensors")
def weights_without_tensors(m):
    m.tensors.all.clear()


@model_case("regular file")
def weights_are_a_directory(m):
    m.files["model.safetensors"] = Directory


@model_case("model.safetensors")
def weights_link_to_themselves(m):
    m.files["model.safetensors"] = LinkLoop


@model_case("no model.safetensors")
def weights_absent(m):
    m.files["model.safetensors"] = None


@model_case("pytorch_model.bin is not read")
def weights_pickled(m):
    m.files.update({"model.safetensors": None, "pytorch_model.bin": b"\x80\x02"})


# Index.

@model_case("JSON")
def index_not_json(m):
    m.files.update({"model.safetensors": None, "model.safetensors.index.json": "weight_map"})


@model_case("weight_map")
def index_without_map(m):
    m.files.update({"model.safetensors": None, "model.safetensors.index.json": '{"metadata": {}}'})


@model_case("weight_map")
def index_map_is_a_list(m):
    m.files.update({"model.safetensors": None, "model.safetensors.index.json": '{"weight_map": ["a"]}'})


@model_case("three.safetensors")
def index_to_absent_shard(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "three.safetensors"}))


@model_case("it is not there")
def index_to_absent_tensor(m):
    m.shard(lambda weight_map: weight_map.update({"model.layers.9.mlp.up_proj.weight": "one.safetensors"}))


@model_case("does not list it")
def index_leaves_tensor_out(m):
    m.shard(lambda weight_map: weight_map.pop(LAYER0_Q))


@model_case("lists it under")
def index_names_other_shard(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "two.safetensors"}))


@model_case("same directory")
def index_escapes_upwards(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "../base/one.safetensors"}))


@model_case("same directory")
def index_escapes_to_root(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "/etc/passwd"}))


@model_case("same directory")
def index_name_with_nul(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "one.safetensors\0.safetensors"}))


@model_case("not the name of a .safetensors file")
def index_names_itself(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: "model.safetensors.index.json"}))


@model_case("no file name")
def index_names_a_number(m):
    m.shard(lambda weight_map: weight_map.update({LAYER0_Q: 1}))


@model_case("symbolic links")
def index_shard_links_to_itself(m):
    m.shard()
    m.files["one.safetensors"] = LinkLoop


# config.json and generation_config.json.

@model_case("config.json")
def config_absent(m):
    m.files["config.json"] = None


@model_case("is a LoRA adapter, not a base model")
def model_is_an_adapter(m):
    m.files["config.json"] = None
    m.files["adapter_config.json"] = json.dumps(Adapter().config)


@model_case("JSON")
def config_empty(m):
    m.files["config.json"] = ""


@model_case("JSON")
def config_not_json(m):
    m.files["config.json"] = "model_type: llama"


@model_case("not a JSON object")
def config_is_a_list(m):
    m.files["config.json"] = "[]"


@model_case("depth")
def config_deep(m):
    m.files["config.json"] = "[" * 100_000


@model_case("JSON")
def config_not_utf8(m):
    m.files["config.json"] = b'{"model_type": "\xff"}'


@model_case("at most")
def config_giant(m):
    m.config["comment"] = "x" * 5_000_000


@model_case("regular file")
def config_is_a_directory(m):
    m.files["config.json"] = Directory


@model_case("overflow")
def config_number_giant(m):
    m.config["hidden_size"] = 10 ** 400


@model_case("hidden_size")
def config_number_too_large(m):
    m.config["hidden_size"] = 1 << 40


@model_case("integer")
def config_number_is_text(m):
    m.config["hidden_size"] = "16"


@model_case("num_hidden_layers")
def config_layers_absurd(m):
    m.config["num_hidden_layers"] = 2_000_000_000


@model_case("num_attention_heads")
def config_no_heads(m):
    m.config["num_attention_heads"] = 0


@model_case("multiple")
def config_heads_do_not_divide(m):
    m.config.update(num_attention_heads=3, num_key_value_heads=2)


@model_case("even")
def config_head_dim_odd(m):
    m.config["head_dim"] = 7


@model_case("vocab_size")
def config_vocabulary_negative(m):
    m.config["vocab_size"] = -1


@model_case("missing")
def config_key_missing(m):
    del m.config["intermediate_size"]


@model_case("mamba")
def config_unknown_family(m):
    m.config["model_type"] = "mamba"


@model_case("\"quant_method\" \"gptq\" is not supported")
def config_quantised(m):
    m.config["quantization_config"] = {"quant_method": "gptq", "bits": 4}


@model_case("yarn")
def config_rope_unsupported(m):
    m.config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0}


@model_case("gelu")
def config_activation_unsupported(m):
    m.config["hidden_act"] = "gelu"


@model_case("partial_rotary_factor")
def config_partial_rotary(m):
    m.config["partial_rotary_factor"] = 0.5


@model_case("eos_token_id")
def config_end_token_is_text(m):
    m.config["eos_token_id"] = "<end>"


@model_case("generation_config.json")
def generation_config_not_json(m):
    m.files["generation_config.json"] = "{,}"


@model_case("generation_config.json")
def generation_config_is_a_directory(m):
    m.files["generation_config.json"] = Directory


# tokenizer.json.

@model_case("tokenizer.json")
def tokenizer_absent(m):
    m.files["tokenizer.json"] = None


@model_case("tokenizer.json")
def tokenizer_empty(m):
    m.files["tokenizer.json"] = ""


@model_case("tokenizer.json")
def tokenizer_not_json(m):
    m.files["tokenizer.json"] = "<xml/>"


@model_case("tokenizer.json")
def tokenizer_deep(m):
    m.files["tokenizer.json"] = '{"model":' * 100_000


@model_case("tokenizer.json")
def tokenizer_is_a_list(m):
    m.files["tokenizer.json"] = "[]"


@model_case("tokenizer.json")
def tokenizer_without_model(m):
    del m.tokenizer["model"]


@model_case("Unigram")
def tokenizer_of_other_kind(m):
    m.tokenizer["model"]["type"] = "Unigram"


@model_case("tokenizer.json")
def tokenizer_vocabulary_is_text(m):
    m.tokenizer["model"]["vocab"] = "abc"


@model_case("tokenizer.json")
def tokenizer_id_negative(m):
    m.tokenizer["model"]["vocab"]["hi"] = -1


@model_case("tokenizer.json")
def tokenizer_id_absurd(m):
    m.tokenizer["model"]["vocab"]["hi"] = 1 << 50


@model_case("tokenizer.json")
def tokenizer_merge_of_unknown(m):
    m.tokenizer["model"]["merges"].append("nobody knows")


@model_case("tokenizer.json")
def tokenizer_merges_are_numbers(m):
    m.tokenizer["model"]["merges"] = [1, 2]


@model_case("Frobnicate")
def tokenizer_unknown_component(m):
    m.tokenizer["pre_tokenizer"] = {"type": "Frobnicate"}


@model_case("tokenizer.json")
def tokenizer_bad_expression(m):
    m.tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}


# adapter_config.json.

@adapter_case("adapter_config.json")
def adapter_config_absent(a):
    a.files["adapter_config.json"] = None


@adapter_case("is a model, not an adapter")
def adapter_is_a_model(a):
    a.files["adapter_config.json"] = None
    a.files["config.json"] = json.dumps(Model().config)


@adapter_case("JSON")
def adapter_config_empty(a):
    a.files["adapter_config.json"] = ""


@adapter_case("not a JSON object")
def adapter_config_is_text(a):
    a.files["adapter_config.json"] = '"LORA"'


@adapter_case("depth")
def adapter_config_deep(a):
    a.files["adapter_config.json"] = '{"r":' * 100_000


@adapter_case("at most")
def adapter_config_giant(a):
    a.config["comment"] = "x" * 5_000_000


@adapter_case("regular file")
def adapter_config_is_a_directory(a):
    a.files["adapter_config.json"] = Directory


@adapter_case("symbolic links")
def adapter_config_links_to_itself(a):
    a.files["adapter_config.json"] = LinkLoop


@adapter_case("IA3")
def adapter_of_other_kind(a):
    a.config["peft_type"] = "IA3"


@adapter_case("peft_type")
def adapter_kind_absent(a):
    del a.config["peft_type"]


@adapter_case("between 1 and 512")
def rank_zero(a):
    a.config["r"] = 0


@adapter_case("between 1 and 512")
def rank_negative(a):
    a.config["r"] = -4


@adapter_case("between 1 and 512")
def rank_absurd(a):
    a.config["r"] = 1 << 60


@adapter_case("between")
def rank_giant(a):
    a.config["r"] = 10 ** 300


@adapter_case("integer")
def rank_is_text(a):
    a.config["r"] = "4"


@adapter_case("rank 8 make it [8, 16]")
def rank_not_the_weights(a):
    a.config["r"] = 8


@adapter_case("rank_pattern")
def rank_pattern_absurd(a):
    a.config["rank_pattern"] = {"q_proj": 100_000}


@adapter_case("rank_pattern")
def rank_pattern_does_not_compile(a):
    a.config["rank_pattern"] = {"q_proj[": 4}


@adapter_case("lora_alpha")
def alpha_is_text(a):
    a.config["lora_alpha"] = "16"


@adapter_case("overflow")
def alpha_giant(a):
    a.files["adapter_config.json"] = json.dumps(a.config).replace('"lora_alpha": 8', '"lora_alpha": 1e999')


@adapter_case("not a regular expression")
def target_does_not_compile(a):
    a.config["target_modules"] = "(q_proj"


@adapter_case("costly")
def target_catastrophic(a):
    a.config["target_modules"] = r"(([a-z0-9_.]+)+)+[!?]"


@adapter_case("too long")
def target_giant(a):
    a.config["target_modules"] = "(q_proj|" * 20_000 + "x" + ")" * 20_000


@adapter_case("not a regular expression")
def target_nested_deep(a):
    a.config["target_modules"] = "(" * 2000 + "x" + ")" * 2000


@adapter_case("target_modules")
def target_absent(a):
    a.config["target_modules"] = None


@adapter_case("target_modules")
def target_of_numbers(a):
    a.config["target_modules"] = [1, 2]


@adapter_case("lm_head")
def target_is_the_head(a):
    a.config["target_modules"].append("lm_head")


@adapter_case("missing")
def target_without_weights(a):
    a.config["target_modules"].append("v_proj")


@adapter_case("does not target")
def weights_without_target(a):
    a.config["target_modules"] = ["q_proj"]


@adapter_case("layers.1.")
def layers_do_not_match(a):
    a.config["layers_to_transform"] = [0]


@adapter_case("DoRA")
def dora(a):
    a.config["use_dora"] = True


@adapter_case("modules_to_save")
def modules_to_save(a):
    a.config["modules_to_save"] = ["embed_tokens", "lm_head"]


@adapter_case("bias")
def bias(a):
    a.config["bias"] = "lora_only"


@adapter_case("pissa")
def base_changed_by_initialisation(a):
    a.config["init_lora_weights"] = "pissa"


@adapter_case("trainable_token_indices")
def tokens_trained(a):
    a.config["trainable_token_indices"] = [1, 2]


@adapter_case("hyper_lora")
def unknown_feature(a):
    a.config["hyper_lora"] = {"depth": 2}


# Adapter weights.

@adapter_case("NaN")
def adapter_weight_is_nan(a):
    a.tensors.poke(LORA0 + "lora_B.weight", 4, struct.pack("<f", float("nan")))


@adapter_case("infinity")
def adapter_weight_is_infinite(a):
    a.tensors.add(LORA0 + "lora_A.weight", RANK, HIDDEN, dtype="BF16")
    a.tensors.poke(LORA0 + "lora_A.weight", 0, b"\x80\xff")


@adapter_case("its lora_B is missing")
def lora_b_missing(a):
    del a.tensors.all[LORA0 + "lora_B.weight"]


@adapter_case("its lora_A is missing")
def lora_a_missing(a):
    del a.tensors.all[LORA0 + "lora_A.weight"]


@adapter_case("make it [4, 16]")
def other_base_width(a):
    a.tensors.add(LORA0 + "lora_A.weight", RANK, 2 * HIDDEN)


@adapter_case("make it [16, 4]")
def lora_b_transposed(a):
    a.tensors.add(LORA0 + "lora_B.weight", RANK, HEADS * DIM)


@adapter_case("the base has 2 layers")
def other_base_depth(a):
    a.tensors.add(LORA0.replace("layers.0", "layers.7") + "lora_A.weight", RANK, HIDDEN)


@adapter_case("is not lora_A")
def other_family(a):
    a.tensors.add("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", RANK, HIDDEN)


@adapter_case("DoRA")
def magnitude_vector(a):
    a.tensors.add(LORA0 + "lora_magnitude_vector", HEADS * DIM)


@adapter_case("embedding")
def embedding_adapted(a):
    a.tensors.add("base_model.model.model.embed_tokens.lora_embedding_A", RANK, VOCAB)


@adapter_case("lm_head")
def head_replaced(a):
    a.tensors.add("base_model.model.lm_head.weight", VOCAB, HIDDEN)


@adapter_case("is F8_E4M3; only F32, F16 and BF16 are supported")
def tensor_of_fp8(a):
    a.tensors.add(LORA0 + "lora_A.weight", RANK, HIDDEN, dtype="F8_E4M3")


@adapter_case("I64")
def adapter_of_integers(a):
    a.tensors.add(LORA0 + "lora_A.weight", RANK, HIDDEN, dtype="I64")


@adapter_case("same place")
def pair_twice(a):
    a.tensors.add(LORA0 + "lora_A.default.weight", RANK, HIDDEN)


@adapter_case("adapter_model.bin is not read")
def adapter_pickled(a):
    a.files.update({"adapter_model.safetensors": None, "adapter_model.bin": b"\x80\x02"})


@adapter_case("adapter_model.safetensors")
def adapter_weights_absent(a):
    a.files["adapter_model.safetensors"] = None


@adapter_case("regular file")
def adapter_weights_are_a_directory(a):
    a.files["adapter_model.safetensors"] = Directory


@pytest.mark.parametrize("broken, word", MODEL_CASES)
def test_bad_model(punica, tmp_path, broken, word):
    model = Model()
    broken(model)
    refused(punica, generate(model.write(tmp_path / "base")), word)


@pytest.mark.parametrize("broken, word", ADAPTER_CASES)
def test_bad_adapter(punica, tmp_path, base, broken, word):
    adapter = Adapter()
    broken(adapter)
    root = adapter.write(tmp_path / "mine")
    refused(punica, ["adapter", "check", root, "--model", base], word)
    refused(punica, generate(base, "--adapter", f"mine={root}"), word)


def test_adapter_of_other_base(punica, tmp_path):
    """A good adapter against a model of other width."""
    model = Model()
    model.config["hidden_size"] = 2 * HIDDEN
    root = model.write(tmp_path / "base")
    refused(punica, ["adapter", "check", Adapter().write(tmp_path / "mine"), "--model", root], "make it [4, 32]")
    refused(punica, generate(root), "by config.json")


def test_paths_that_are_no_directories(punica, tmp_path, base):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "absent"):
        refused(punica, generate(path), str(path))
        refused(punica, ["adapter", "check", path, "--model", base], str(path))
        refused(punica, generate(base, "--adapter", f"mine={path}"), str(path))
