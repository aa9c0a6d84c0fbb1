"""Models split over ranks (--tp), and the KvCache in 8 bits (--kv fp8): the same answers, whoever shares the batch.

On the CPU all ranks are in one process; what they compute and tell each other is what GPUs would.
"""
import json
import os
import signal
import urllib.request

import pytest
from cluster import Cluster
from conftest import FAMILIES, Golden
from serving import Server
from test_cluster_parts import Streams, half_way

N_TOKENS = 24
# Families whose heads can be dealt out so: 6 over 3 with fewer key heads, 8 over 2 ranks of which two share a key head, ...
SPLITS = {"llama2": [2, 3], "llama3": [2, 4], "mistral": [3], "qwen3": [2, 4], "llama-fp8-tensor": [3], "qwen2-fp8-channel": [2, 4],
          "qwen3-fp8-block": [2]}


def requests_of(golden):
    return [{"adapter": c["adapter"], "prompt": c["prompt"], "max_tokens": N_TOKENS, "logprobs": 2} for c in golden.cases]


def logprobs(results):
    return [[t["logprob"] for t in r["logprobs"]] for r in results]


def test_split_models_make_the_same_tokens(golden, generate):
    requests = requests_of(golden)
    whole = generate(golden, requests, "--ignore-eos")
    for tp in SPLITS.get(golden.root.name, []):
        got = generate(golden, requests, "--ignore-eos", "--tp", tp)
        assert [r["token_ids"] for r in got] == [c["tokens"][:N_TOKENS] for c in golden.cases], tp
        for a, b in zip(logprobs(got), logprobs(whole)):
            assert a == pytest.approx(b, abs=1e-4), tp


@pytest.mark.parametrize("family, options", [("llama2", ["--tp", 2]), ("llama2", ["--kv", "fp8"]), ("llama3", ["--tp", 4]),
                                             ("qwen3", ["--tp", 2, "--kv", "fp8", "--weights", "fp8"])],
                         ids=["split", "kv-fp8", "split-in-4", "split-and-fp8"])
def test_company_does_not_matter(generate, family, options):
    model = Golden(next(f for f in FAMILIES if f.name == family))
    requests = requests_of(model)
    alone = generate(model, requests, "--ignore-eos", "--max-batch", 1, "--threads", 1, *options)
    for how in (["--max-batch", 32], ["--max-batch", 5, "--threads", 2], ["--max-batch", 8, "--kv-pages", 12]):
        together = generate(model, requests, "--ignore-eos", *how, *options)
        assert [(r["token_ids"], r["logprobs"]) for r in together] == [(r["token_ids"], r["logprobs"]) for r in alone], how


def test_kv_in_8_bits_is_close(golden, generate):
    """By how much the likelier tokens differ: random models are the worst case, their choices mean nothing."""
    requests = [{**r, "max_tokens": 1} for r in requests_of(golden)]
    plain, fp8 = generate(golden, requests, "--ignore-eos"), generate(golden, requests, "--ignore-eos", "--kv", "fp8")
    near = [abs(a[0] - b[0]) < 0.5 for a, b, x, y in zip(logprobs(plain), logprobs(fp8), plain, fp8) if x["token_ids"] == y["token_ids"]]
    assert len(near) >= 0.7 * len(requests) and all(near)


# All commands that load a model, and what else they need.
COMMANDS = {"generate": ["--prompt", "x"], "serve": [], "runner": ["--scheduler", "127.0.0.1:1"], "bench textgen": ["--requests", 1]}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_split_is_refused(punica, one_golden, command):
    run = [*command.split(), "--model", one_golden.model, *COMMANDS[command]]
    assert "6 attention heads" in punica.refuses(*run, "--tp", 4)
    assert "--tp must be between 1 and 16" in punica.refuses(*run, "--tp", 17)
    assert "form of the KvCache" in punica.refuses(*run, "--kv", "f16")
    assert "form of weights" in punica.refuses(*run, "--weights", "int4")
    assert "cuda:0-2 is 3" in punica.refuses(*run, "--device", "cuda:0-2", "--tp", 2)


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_quantisation_is_refused(punica, one_golden, command, tmp_path):
    """By the command itself, and not by a worker that is started again and again."""
    for file in one_golden.model.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((one_golden.model / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq", "bits": 4}}))
    assert '"quant_method" "awq" is not supported' in punica.refuses(*command.split(), "--model", tmp_path, *COMMANDS[command])


def test_a_killed_worker_of_a_split_model(tmp_path_factory):
    """A rank that dies takes its worker along: its streams go on at another, and nobody's text changes."""
    made = []
    for name in ("undisturbed", "killed"):
        c = Cluster(tmp_path_factory.mktemp(name))
        try:
            c.scheduler()
            runners = [c.runner("--tp", 2) for _ in range(2)]
            streams = Streams(c)
            if name == "killed":
                half_way(streams)
                os.kill(runners[1].children()[0], signal.SIGKILL)
                os.kill(runners[0].children()[0], signal.SIGKILL)
            made.append(streams.finish())
            if name == "killed":
                runners[0].wait_log("ended: killed by signal 9; starting it again")
        finally:
            c.close()
    assert made[0] == made[1]


def test_gpus_of_a_runner_make_up_workers(tmp_path_factory):
    """Eight GPUs and --tp 4 are two workers, whether there are such GPUs here or not."""
    c = Cluster(tmp_path_factory.mktemp("groups"))
    try:
        c.scheduler()
        runner = c.runner("--device", "cuda:0-7", "--tp", 4)
        runner.wait_log(r"worker 0 (is ready )?on .*cuda:0")
        runner.wait_log(r"worker 1 (is ready )?on .*cuda:4")
        assert "worker 2" not in runner.log()
    finally:
        c.close()


def test_metrics_say_what_a_worker_is():
    server = Server("--tp", 2, "--kv", "fp8", "--weights", "fp8", "--threads", 1)
    try:
        assert server.metric("punica_gpus") == 1
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as page:
            [line] = [x for x in page.read().decode().splitlines() if x.startswith("punica_gpu_info{")]
        assert 'device="2 ranks on cpu (' in line and "weights FP8, KvCache FP8" in line
    finally:
        assert server.stop() == 0
