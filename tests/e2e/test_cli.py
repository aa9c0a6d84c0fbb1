"""What the command line promises: exit codes, one-line errors, help, JSON lines, sampling."""
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import PROGRAM, ROOT

EXPERIMENTS = [["bench", name] for name in ("textgen", "turns", "prompts", "step", "layer", "op", "attention", "load", "comm")]
COMMANDS = [["tenant"], ["tenant", "key"], ["tenant", "key", "add"], ["generate"], ["tokenize"], ["template"], ["adapter"], ["adapter", "check"], ["bench"], ["serve"], ["frontend"], *EXPERIMENTS]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help(punica, command):
    done = punica(*command, "--help")
    assert done.returncode == 0 and not done.stderr
    assert "usage: punica" in done.stdout


def test_no_command(punica):
    done = punica()
    assert done.returncode == 2 and "usage: punica" in done.stderr


def test_unknown_command(punica):
    assert "frobnicate" in punica.refuses("frobnicate")


@pytest.mark.parametrize("command", [["generate"], ["tokenize"], ["template"], ["adapter", "check"], ["serve"], ["frontend"], *EXPERIMENTS], ids=" ".join)
def test_unknown_option(punica, command):
    said = punica.refuses(*command, "--no-such-option")
    assert "--no-such-option" in said and f"see punica {' '.join(command)} --help" in said


def test_unknown_experiment(punica):
    assert '"frobnicate"' in punica.refuses("bench", "frobnicate") and "which experiment" in punica.refuses("bench")


@pytest.mark.parametrize("sizes", ["", ",", "1,", "0", "1,x", "1,4097", ",".join(["1"] * 33)])
def test_bad_lists_of_numbers(punica, sizes):
    assert "--batch" in punica.refuses("bench", "step", "--batch", sizes)


def test_host_and_port_are_parts_of_the_address(punica):
    assert "192.0.2.1:80 " in punica.refuses("frontend", "--scheduler", "127.0.0.1:1", "--model", ROOT / "demo" / "model",
                                             "--listen", "127.0.0.1:80", "--host", "192.0.2.1")


@pytest.mark.parametrize("bad", [["--max-batch", "0"], ["--threads", "two"], ["--temperature", "-1"],
                                 ["--top-p", "nan"], ["--max-tokens", "99999999999999999999"], ["--seed", "-1"],
                                 ["--kv-pages"]], ids=" ".join)
def test_bad_option_value(punica, one_golden, bad):
    assert bad[0] in punica.refuses("generate", "--model", one_golden.model, "--prompt", "x", *bad)


NUMBERS = {"N", "S", "SECONDS", "BYTES", "MS", "SHARE", "PORT", "T", "P", "K", "H", "R"}


@pytest.mark.parametrize("command", [["generate"], ["chat"], ["template"], ["adapter", "add"], ["adapter", "check"], ["serve"], ["frontend"], ["runner"], ["scheduler"],
                                     ["worker"], ["fetcher"], ["simulate"], ["tenant", "add"], ["tenant", "audit"], *EXPERIMENTS, ["bench", "mask"]], ids=" ".join)
def test_no_number_is_negative(punica, command):
    said = punica(*command, "--help").stdout
    numbers = [name for name, arg in re.findall(r"^  (--[a-z0-9-]+) (\S+)  ", said, re.M) if arg in NUMBERS]
    numbers += re.findall(r"^  (--[a-z0-9-]+) LIST .*\([0-9,]+\)$", said, re.M)
    assert numbers
    for option in numbers:
        assert option in punica.refuses(*command, option, "-1")


@pytest.mark.parametrize("option", ["--max-tokens", "--seed", "--temperature", "--memory-share"])
@pytest.mark.parametrize("value", ["", " ", "-1", " -1", "nan", "inf", "-inf", "1e300", "1e-400", "99999999999999999999", "1x", "1,5"])
def test_odd_numbers(punica, option, value):
    assert option in punica.refuses("generate", option, value)


@pytest.mark.parametrize("bad", ["-1", "nan", "1e300", "", "9223372036854775807", "1e15", "0.5"])
def test_odd_sizes(punica, bad):
    for option in ("--cache-bytes", "--max-adapter-bytes", "--kv-host-bytes"):
        assert option in punica.refuses("runner", option, bad)


def test_devices(punica, one_golden):
    model = ["generate", "--model", one_golden.model, "--prompt", "x", "--max-tokens", "1"]
    for bad in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999999999999", "cpu:0"):
        assert f'"{bad}"' in punica.refuses(*model, "--device", bad)
    assert re.search("GPU|CUDA", punica.refuses(*model, "--device", "cuda:4096"))       # no machine has that many
    assert punica(*model, "--device", "cpu").returncode == 0


def test_forms_of_weights(punica, one_golden, tmp_path):
    """fp8 is another model; every command that loads one refuses a form it does not know."""
    prompts, model, logprob = tmp_path / "prompts", ["--model", one_golden.model], {}
    prompts.write_text('{"prompt": "the adapters share", "max_tokens": 1, "logprobs": 1}')
    for form in ("stored", "fp8"):
        done = punica("generate", *model, "--prompts", prompts, "--json", "--weights", form)
        logprob[form] = json.loads(done.stdout)["logprobs"][0]["logprob"]
    assert logprob["stored"] != logprob["fp8"]
    for command in (["generate", *model, "--prompt", "x"], ["serve", *model], ["bench", "step", "--shape", "small"],
                    ["runner", *model, "--scheduler", "127.0.0.1:1"], ["bench", "textgen", "--shape", "small"]):
        assert 'unknown form of weights "int8"' in punica.refuses(*command, "--weights", "int8")


@pytest.mark.parametrize("experiment, bad", [
    (["bench", "step"], ["--batch", "1,x"]), (["bench", "step"], ["--context", ","]), (["bench", "step"], ["--batch", "0"]),
    (["bench", "step"], ["--prompt", "-1"]), (["bench", "step"], ["--rank", "16,0"]), (["bench", "layer"], ["--rank", "513"]),
    (["bench", "layer"], ["--shape", "none"]), (["bench", "op"], ["--dims", "4096"]), (["bench", "op"], ["--dims", "8x0"]), (["bench", "op"], ["--dims", "4294967360x64"]), (["simulate", "--faults"], ["--seeds", "-2:-1"]),
    (["bench", "op"], ["--rank", ""]), (["bench", "load"], ["--dtype", "int8"]), (["bench", "comm"], ["--tp", "1"]), (["bench", "comm"], ["--batch", "x"]),
    (["bench", "attention"], ["--prompt", "0"]), (["bench", "attention"], ["--context", "-1"]), (["bench", "attention"], ["--shape", "none"]),
    (["bench", "textgen"], ["--workload", "some"]), (["bench", "turns"], ["--shape", "small", "--cache", "disk"]),
    (["bench", "turns"], ["--shape", "small", "--cache", ","]), (["bench", "turns"], ["--kv-host-bytes", "-1"]),
    (["bench", "prompts"], []), (["bench", "prompts"], ["--shape", "small", "--len", "0"]), (["bench", "prompts"], ["--shape", "small", "--adapters", "x"])], ids=str)
def test_bad_experiments(punica, experiment, bad):
    done = punica(*experiment, *bad)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not done.stdout, (done.stderr, done.stdout)


def test_experiments_run(punica, tmp_path):
    """Each on the smallest shape: a row per point, and the same number of rows as CSV."""
    step = ["--shape", "small", "--batch", "1,2", "--context", "16", "--workload", "none,distinct"]
    for what, args, n in [("step", [*step, "--prompt", "0,5"], 8), ("step", [*step, "--rank", "3,17"], 4), ("layer", step, 4), ("step", [*step, "--tp", "2", "--kv", "fp8", "--masked"], 4),
                          ("attention", ["--shape", "small", "--prompt", "3,20", "--context", "0,17", "--prompts", "2"], 4),
                          ("comm", ["--tp", "3", "--hidden", "72", "--vocab", "1001", "--batch", "1,5"], 2),
                          ("prompts", ["--shape", "small", "--streams", "2", "--context", "9", "--prompts", "2", "--len", "5,40", "--adapters", "0,2", "--rank", "3"], 4),
                          ("prompts", ["--shape", "small", "--streams", "0", "--prompts", "3", "--len", "20", "--adapters", "1"], 1),
                          ("op", ["--dims", "64x96,100x36", "--rank", "4", "--batch", "1,3", "--workload", "distinct"], 4)]:
        csv = tmp_path / f"{what}.csv"
        done = punica("bench", what, *args, "--csv", csv)
        assert done.returncode == 0, done.stderr
        assert len(csv.read_text().splitlines()) == 1 + n
        assert sum(line.lstrip()[:1].isdigit() for line in done.stdout.splitlines()) == n
    done = punica("bench", "load", "--shape", "small", "--batch", "2", "--context", "16")
    assert done.returncode == 0 and "times the copy" in done.stdout


def test_bench_turns(punica):
    """Conversations that are longer than the KvCache together: all is found that can be once the host has room for it."""
    done = punica("bench", "turns", "--shape", "small", "--conversations", "8", "--turns", "2", "--at-once", "1", "--adapters", "2", "--rank", "4",
                  "--system-len", "48", "--user-len", "40", "--gen-len", "8", "--kv-pages", "24", "--kv-host-bytes", "100000000")
    assert done.returncode == 0, done.stderr
    rows = {cells[0]: [float(x.rstrip("%")) for x in cells[1:11]] for cells in map(str.split, done.stdout.splitlines()) if cells and cells[0] in ("off", "device", "host")}
    cached, ideal, saved, fetched = ({mode: row[at] for mode, row in rows.items()} for at in (6, 7, 8, 9))
    assert list(rows) == ["off", "device", "host"] and len(set(ideal.values())) == 1
    assert cached["off"] == 0 and cached["device"] < cached["host"] <= ideal["host"] < 100
    assert saved["device"] == fetched["device"] == 0 and saved["host"] >= 4 and fetched["host"] >= 4


def test_missing_model(punica, tmp_path):
    assert str(tmp_path / "none") in punica.refuses("generate", "--model", tmp_path / "none", "--prompt", "x")
    assert "config.json" in punica.refuses("generate", "--model", tmp_path, "--prompt", "x")
    assert "--model" in punica.refuses("generate", "--prompt", "x")


def test_missing_prompts(punica, one_golden, tmp_path):
    model = ["--model", one_golden.model]
    assert "nowhere" in punica.refuses("generate", *model, "--prompts", tmp_path / "nowhere")
    assert "--prompt" in punica.refuses("generate", *model)
    assert "--prompt" in punica.refuses("generate", *model, "--prompt", "x", "--prompts", "-")


def test_missing_adapter(punica, one_golden, tmp_path):
    model = ["--model", one_golden.model, "--prompt", "x"]
    assert "adapter_config.json" in punica.refuses("generate", *model, "--adapter", f"mine={tmp_path}")
    assert "NAME=DIR" in punica.refuses("generate", *model, "--adapter", "mine")


GOOD_LINE = '{"prompt": [5, 6, 7], "max_tokens": 2}'


@pytest.mark.parametrize("line, says", [
    ('{"adapter": "ghost", "prompt": [5]}', "ghost"),
    ('{"prompt": [5]', "line"),
    ("not json", "line"),
    ("[1, 2]", "object"),
    ('{"prompt": [5], "max_tokns": 3}', "max_tokns"),
    ("{}", "prompt"),
    ('{"prompt": []}', ""),
    ('{"prompt": [5, -1]}', "prompt"),
    ('{"prompt": [5, 1.5]}', "prompt"),
    ('{"prompt": [5, 100000]}', "100000"),
    ('{"prompt": [5], "adapter": 3}', "adapter"),
    ('{"prompt": [5], "temperature": "hot"}', "temperature"),
    ('{"prompt": [5], "temperature": -1}', "temperature"),
    ('{"prompt": [5], "top_p": 0}', "top_p"),
    ('{"prompt": [5], "max_tokens": 0}', "max_tokens"),
    ('{"prompt": [5], "seed": -4}', "seed"),
    ('{"prompt": [5], "logprobs": 1000000}', "logprobs"),
    ('{"prompt": ' + "[" * 5000 + "]" * 5000 + "}", "line"),
])
def test_bad_line(punica, one_golden, line, says):
    """The bad line is named, and the good one before it has not been computed."""
    message = punica.refuses("generate", "--model", one_golden.model, "--prompts", "-", "--json",
                             stdin=f"{GOOD_LINE}\n{line}\n")
    assert says in message and "2" in message


def test_empty_text(golden, generate, punica):
    """Something to begin from where the tokenizer puts bos first; nothing, and refused, elsewhere."""
    bos = json.loads((golden.model / "config.json").read_text())["bos_token_id"]
    if golden.texts[0]["ids"][0] == bos:
        [got] = generate(golden, [{"prompt": "", "max_tokens": 1}])
        assert got["prompt_token_ids"] == [bos] and len(got["token_ids"]) == 1
    else:
        assert "1" in punica.refuses("generate", "--model", golden.model, "--prompts", "-", stdin='{"prompt": ""}\n')


def test_prompts_from_file_and_stdin(punica, one_golden, tmp_path):
    lines = f"{GOOD_LINE}\n\n{GOOD_LINE}"           # an empty line, and no newline at the end
    (tmp_path / "prompts.jsonl").write_text(lines)
    args = ["generate", "--model", one_golden.model, "--json", "--prompts"]
    from_file, from_stdin = punica(*args, tmp_path / "prompts.jsonl"), punica(*args, "-", stdin=lines)
    assert from_file.returncode == 0 and len(from_file.stdout.splitlines()) == 2
    assert from_file.stdout == from_stdin.stdout


def test_no_prompts(punica, one_golden):
    done = punica("generate", "--model", one_golden.model, "--json", "--prompts", "-", stdin="")
    assert done.returncode == 0 and not done.stdout


def test_one_prompt_for_all(punica, one_golden):
    done = punica("generate", *one_golden.options(), "--prompt", "the batch", "--max-tokens", 4)
    assert done.returncode == 0 and not done.stderr
    for name in one_golden.adapters:
        assert name in done.stdout


def test_request_larger_than_the_cache(punica, one_golden):
    case = max(one_golden.cases, key=lambda c: len(c["prompt"]))
    line = json.dumps({"prompt": case["prompt"]})
    assert "2" in punica.refuses("generate", "--model", one_golden.model, "--prompts", "-", "--kv-pages", 2,
                                 stdin=f"{GOOD_LINE}\n{line}\n")


def sampled(seed, case, **more):
    return {"adapter": case["adapter"], "prompt": case["prompt"], "max_tokens": 24, "ignore_eos": True,
            "temperature": 1.0, "seed": seed, **more}


def test_seed_decides(golden, generate):
    case = golden.cases[1]
    a, b, c = generate(golden, [sampled(1, case), sampled(1, case), sampled(2, case)])
    assert a["token_ids"] == b["token_ids"] != c["token_ids"]


def test_command_line_seed(one_golden, generate):
    request = {"prompt": one_golden.cases[1]["prompt"]}
    options = ["--temperature", 1, "--max-tokens", 24, "--ignore-eos", "--seed"]
    first, again, other = (generate(one_golden, [request, request], *options, seed) for seed in (3, 3, 4))
    assert first == again and first != other
    assert first[0]["token_ids"] != first[1]["token_ids"]      # lines draw apart


def test_sampling_alone_and_in_company(golden, generate):
    params = [{}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05, "repetition_penalty": 1.2},
           {"presence_penalty": 0.5, "frequency_penalty": 0.3}]
    cases = sorted(golden.cases, key=lambda c: len(c["prompt"]))
    requests = [sampled(i, c, max_tokens=40, **params[i % len(params)]) for i, c in enumerate(cases)]
    alone = generate(golden, requests, "--max-batch", 1, "--threads", 1)
    assert generate(golden, requests, "--max-batch", 32, "--threads", 2) == alone
    assert generate(golden, requests, "--max-batch", 8, "--kv-pages", 12) == alone      # with evictions
    assert generate(golden, requests[::-1], "--max-batch", 7) == alone[::-1]


def test_narrow_sampling_is_greedy(golden, generate):
    case = golden.cases[1]
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 0.0}):
        [got] = generate(golden, [sampled(9, case, **narrow)])
        assert got["token_ids"] == case["tokens"][:24], narrow


def test_limits_on_length(one_golden, generate):
    case = one_golden.cases[1]
    stop = case["tokens"][5]
    first = case["tokens"].index(stop)
    ask = {"prompt": case["prompt"], "ignore_eos": True, "max_tokens": 12}
    one, stopped, held = generate(one_golden, [{**ask, "max_tokens": 1}, {**ask, "stop_token_ids": [stop]},
                                               {**ask, "stop_token_ids": [stop], "min_tokens": 12}])
    assert one["token_ids"] == case["tokens"][:1] and one["finish_reason"] == "length"
    assert stopped["token_ids"] == case["tokens"][:first + 1] and stopped["finish_reason"] == "stop"
    assert len(held["token_ids"]) == 12 and held["finish_reason"] == "length"


def test_logprobs_only_when_asked(one_golden, generate):
    case = one_golden.cases[1]
    ask = {"prompt": case["prompt"], "max_tokens": 3, "ignore_eos": True}
    plain, chosen, top = generate(one_golden, [ask, {**ask, "logprobs": 0}, {**ask, "logprobs": 2}])
    assert "logprobs" not in plain
    assert [len(t["top"]) for t in chosen["logprobs"]] == [0, 0, 0]
    assert [t["top"][0]["token_id"] for t in top["logprobs"]] == case["tokens"][:3]
    assert all(t["top"][0]["logprob"] >= t["top"][1]["logprob"] for t in top["logprobs"])


@pytest.mark.parametrize("command", ["generate", "adapter", "tokenize"])
def test_full_disk(punica, one_golden, command):
    args = {"generate": ["generate", "--prompt", "hi"],
            "adapter": ["adapter", "check", one_golden.adapters["all"]],
            "tokenize": ["tokenize"]}[command]
    with open("/dev/full", "w") as full:
        done = punica(*args, "--model", one_golden.model, stdin='"hi"\n', stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("punica: cannot write")


def test_tokenize_there_and_back(golden, punica):
    texts = "".join(json.dumps(t["text"]) + "\n" for t in golden.texts)
    encoded = punica("tokenize", "--model", golden.model, stdin=texts)
    assert encoded.returncode == 0
    assert [json.loads(line) for line in encoded.stdout.splitlines()] == [t["ids"] for t in golden.texts]
    decoded = punica("tokenize", "--model", golden.model, "--decode", stdin=encoded.stdout)
    assert [json.loads(line) for line in decoded.stdout.splitlines()] == [t["text"] for t in golden.texts]


def test_tokenize_bad_line(punica, one_golden):
    assert "2" in punica("tokenize", "--model", one_golden.model, stdin='"fine"\n{"no": 1}\n').stderr
    assert punica("tokenize", "--model", one_golden.model, stdin='"open\n').returncode == 2


def test_adapter_check(golden, punica):
    for name, path in golden.adapters.items():
        done = punica("adapter", "check", path, "--model", golden.model)
        assert done.returncode == 0, (name, done.stderr)
        rank = json.loads((path / "adapter_config.json").read_text())["r"]
        assert str(rank) in done.stdout


def test_adapter_of_another_base(punica, one_golden):
    other = one_golden.root.parent / "mistral"
    assert other.is_dir() and other != one_golden.root
    path, model = other / "adapters/all", ["--model", one_golden.model]
    assert "proj" in punica.refuses("adapter", "check", path, *model)
    assert "alien" in punica.refuses("generate", *model, "--adapter", f"alien={path}", "--prompt", "x")


def test_generate_writes_as_it_goes_and_keeps_what_it_has(punica):
    """A single completion comes piece by piece; Ctrl-C ends it, and what has come is there."""
    demo = ["--model", ROOT / "demo" / "model"]
    whole = punica("generate", *demo, "--prompt", "Tom of Lima", "--max-tokens", 900, "--ignore-eos").stdout
    with subprocess.Popen([PROGRAM, "generate", *map(str, demo), "--prompt", "Tom of Lima", "--max-tokens", "900", "--ignore-eos"],
                          stdout=subprocess.PIPE) as one:
        begun = os.read(one.stdout.fileno(), 20)
        one.send_signal(signal.SIGINT)
        text = (begun + one.stdout.read()).decode()
    assert one.returncode == 130
    text, facts = text.rsplit("\n\n", 1)
    assert 0 < len(text) < 2000 and whole.startswith(text) and "1 request" in facts


def test_generate_completes_standard_input(punica):
    demo = ["generate", "--model", ROOT / "demo" / "model", "--max-tokens", 9]
    text = punica(*demo, stdin="Tom of Lima\n").stdout.split("\n\n")[0]
    assert text == punica(*demo, "--prompt", "Tom of Lima").stdout.split("\n\n")[0]
    assert "NUL" in punica.refuses(*demo, stdin="a\0b")


def test_lines_come_in_order_each_when_it_is_done(punica):
    lengths = (3, *[900] * 60, 2)           # so many that they are at it for long, on any machine
    prompts = "".join(json.dumps({"prompt": "Tom", "max_tokens": n, "ignore_eos": True}) + "\n" for n in lengths)
    with subprocess.Popen([PROGRAM, "generate", "--model", ROOT / "demo" / "model", "--prompts", "-", "--json"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        one.stdin.write(prompts)
        one.stdin.close()
        assert len(json.loads(one.stdout.readline())["token_ids"]) == 3
        one.send_signal(signal.SIGINT)
        *long, last = map(json.loads, one.stdout)
    assert len(long) == 60 and all(r["finish_reason"] == "cut off" and len(r["token_ids"]) < 900 for r in long) and long[0]["token_ids"]
    assert last["finish_reason"] in ("length", "cut off") and len(last["token_ids"]) <= 2


def test_serve_arguments_that_contradict_each_other(punica):
    demo = ROOT / "demo" / "model"
    assert "given twice" in punica.refuses("serve", demo, "--model", demo)
    assert "at least 8 characters" in punica.refuses("serve", demo, "--api-key", "short")
    assert "unexpected argument" in punica.refuses("serve", demo, demo)
