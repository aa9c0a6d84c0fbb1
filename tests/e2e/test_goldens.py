"""The program computes what Transformers + PEFT compute, whoever shares the batch.

The models are tiny and random; the greedy paths in their goldens have clear choices, so any
difference in tokens is an error. That batches do not touch each other's results is tested bit for
bit, through the log-probabilities.
"""
import base64
import json
import math
import shutil
import struct

import pytest

N_TOKENS = 48
N_TOP = 3


def request(case, **more):
    return {"adapter": case["adapter"], "prompt": case["prompt"], **more}


def tokens_of(results):
    return [r["token_ids"] for r in results]


@pytest.fixture(scope="module")
def alone(generate):
    """All cases of a family, each by itself, with log-probabilities. Computed once per family."""
    cache = {}

    def get(golden):
        if golden.root not in cache:
            requests = [request(c, logprobs=N_TOP) for c in golden.cases]
            cache[golden.root] = generate(golden, requests, "--ignore-eos", "--max-tokens", N_TOKENS,
                                          "--max-batch", 1, "--threads", 1)
        return cache[golden.root]
    return get


def test_each_alone(golden, alone):
    for case, got in zip(golden.cases, alone(golden)):
        where = (case["adapter"], len(case["prompt"]))
        assert got["token_ids"] == case["tokens"], where
        assert got["finish_reason"] == "length", where


def test_each_adapter_in_its_own_process(golden, generate):
    for name in [None, *golden.adapters]:
        case = [c for c in golden.cases if c["adapter"] == name][-1]
        [got] = generate(golden, [request(case, ignore_eos=True, max_tokens=N_TOKENS)])
        assert got["token_ids"] == case["tokens"], name


def test_text(golden, alone):
    for case, got in zip(golden.cases, alone(golden)):
        if case["text"] is not None:
            assert got["text"] == case["text"], (case["adapter"], len(case["prompt"]))


def log_softmax(values_b64):
    raw = base64.b64decode(values_b64)
    logits = struct.unpack(f"<{len(raw) // 4}f", raw)
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits], max(map(abs, logits))


def test_logprobs(golden, alone):
    for case, got in zip(golden.cases, alone(golden)):
        assert len(got["logprobs"]) == N_TOKENS
        for row in case["logits"]:
            expected, scale = log_softmax(row["values_b64"])
            made = got["logprobs"][row["position"] - len(case["prompt"]) + 1]
            best = sorted(range(len(expected)), key=lambda t: -expected[t])[:N_TOP]
            assert sorted(t["token_id"] for t in made["top"]) == sorted(best)
            for t in [made, *made["top"]]:
                assert abs(t["logprob"] - expected[t["token_id"]]) <= 1e-4 * scale


# Requests leave at different times and others take their places, so prompts are computed beside
# decodes of other adapters. Short prompts come first and grow: into twelve pages more of them are let
# in than can stay.
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", [["--max-batch", 32], ["--max-batch", 5], ["--max-batch", 8, "--kv-pages", 12]],
                         ids=["one-batch", "staggered", "evictions"])
def test_together(golden, generate, alone, engine, threads):
    order = sorted(range(len(golden.cases)), key=lambda i: len(golden.cases[i]["prompt"]))
    lengths = [N_TOKENS - i * 11 % 31 for i in range(len(order))]
    requests = [request(golden.cases[i], logprobs=N_TOP, max_tokens=lengths[i]) for i in order]
    results = generate(golden, requests, "--ignore-eos", "--threads", threads, *engine)
    for i, got in zip(order, results):
        where = (golden.cases[i]["adapter"], len(golden.cases[i]["prompt"]))
        assert got["token_ids"] == golden.cases[i]["tokens"][:lengths[i]], where
        assert got["logprobs"] == alone(golden)[i]["logprobs"][:lengths[i]], where


def test_stops_at_end_token(golden, generate):
    config = json.loads((golden.model / "generation_config.json").read_text())
    results = generate(golden, [request(c, max_tokens=N_TOKENS) for c in golden.cases])
    for case, got in zip(golden.cases, results):
        ends = [i for i, t in enumerate(case["tokens"]) if t in config["eos_token_id"]]
        assert got["token_ids"] == (case["tokens"][:ends[0] + 1] if ends else case["tokens"])
        assert got["finish_reason"] == ("stop" if ends else "length")


def test_other_generation_of_config(golden, generate, tmp_path):
    """config.json as the older and as the newer Transformers write it mean the same model."""
    shutil.copytree(golden.model, tmp_path / "model")
    shutil.copy(golden.root / "config_other.json", tmp_path / "model/config.json")
    requests = [request(c, max_tokens=N_TOKENS) for c in golden.cases]
    results = generate(golden, requests, "--ignore-eos", model=tmp_path / "model")
    assert tokens_of(results) == [c["tokens"] for c in golden.cases]


def test_prompts_as_text(golden, generate):
    results = generate(golden, [{"prompt": t["text"], "max_tokens": 1} for t in golden.texts])
    assert [r["prompt_token_ids"] for r in results] == [t["ids"] for t in golden.texts]
