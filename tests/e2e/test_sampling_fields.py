"""Fields that say how tokens are drawn, and where their defaults come from (generation_config.json)."""
import json
import shutil

import pytest
from conftest import ROOT
from serving import Server, raw

SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."


def complete(server, **body):
    status, _, text = raw(server.address, "POST", "/v1/completions", json.dumps({"model": "demo", "prompt": SENTENCE, **body}).encode())
    assert status == 200, text
    return json.loads(text)


def text(server, **body):
    return complete(server, **body)["choices"][0]["text"]


def test_best_of_tells_the_likeliest(server):
    """The same seed draws the same outputs; those with the best mean logprob of a token are told, the best first."""
    params = {"temperature": 1.2, "seed": 5, "max_tokens": 8, "ignore_eos": True}
    all_of = complete(server, n=5, logprobs=0, **params)["choices"]
    all_of.sort(key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
    best = complete(server, n=2, best_of=5, **params)
    assert [c["text"] for c in best["choices"]] == [c["text"] for c in all_of[:2]] and [c["index"] for c in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 5 * 8 and best["choices"][0]["logprobs"] is None
    two = complete(server, prompt=[SENTENCE, SENTENCE], best_of=3, **params)["choices"]
    assert len(two) == 2 and [c["index"] for c in two] == [0, 1]


def test_add_special_tokens(server):
    with_bos, without = (complete(server, max_tokens=1, add_special_tokens=add)["usage"]["prompt_tokens"] for add in (True, False))
    assert with_bos == without + 1 == complete(server, max_tokens=1)["usage"]["prompt_tokens"]


def test_ends(server):
    """stop_token_ids, ignore_eos, min_tokens, stop with include_stop_str_in_output: each holds."""
    plain = complete(server, model="sql", temperature=0, max_tokens=120)
    assert plain["choices"][0]["finish_reason"] == "stop"
    n, whole = plain["usage"]["completion_tokens"], plain["choices"][0]["text"]
    assert complete(server, model="sql", temperature=0, max_tokens=120, ignore_eos=True)["usage"]["completion_tokens"] == 120
    assert complete(server, model="sql", temperature=0, max_tokens=120, min_tokens=n + 5)["usage"]["completion_tokens"] >= n + 5
    word = " INTO"
    assert text(server, model="sql", temperature=0, max_tokens=120, stop=word) == whole[:whole.index(word)]
    assert text(server, model="sql", temperature=0, max_tokens=120, stop=word, include_stop_str_in_output=True) == whole[:whole.index(word) + len(word)]


@pytest.fixture
def model(tmp_path):
    """A copy of the demo model whose makers have opinions."""
    def make(**values):
        to = tmp_path / "model"
        shutil.copytree(ROOT / "demo/model", to, dirs_exist_ok=True)
        said = json.loads((ROOT / "demo/model/generation_config.json").read_text())
        (to / "generation_config.json").write_text(json.dumps({**said, **values}))
        return to
    return make


def with_server(model, check, *options):
    server = Server("--model", model, "--name", "demo", *options)
    try:
        return check(server)
    finally:
        server.end()


def test_the_models_own_defaults(model, server, tmp_path):
    greedy = text(server, temperature=0, max_tokens=12, ignore_eos=True)
    made = model(temperature=0.9, top_k=1, max_new_tokens=12)

    def check(at):
        assert text(at, max_tokens=40, ignore_eos=True) == greedy                   # top_k 1, and no more than 12 tokens
        return [text(at, seed=s, top_k=0, temperature=1.5, max_tokens=12, ignore_eos=True) for s in range(4)]
    drawn = with_server(made, check)
    assert len(set(drawn)) > 1                                                      # what a request says counts
    for options in (["--generation-config", "none"], ["--generation-config", ROOT / "demo/model"]):
        others = with_server(made, lambda at: [text(at, seed=s, max_tokens=14, ignore_eos=True) for s in range(4)], *options)
        assert len(set(others)) > 1 and any(not o.startswith(greedy) for o in others), options


@pytest.mark.parametrize("values,says", [({"temperature": -1}, "temperature"), ({"top_p": "x"}, "top_p"), ({"max_new_tokens": 0}, "max_new_tokens")])
def test_bad_defaults_are_refused(punica, model, values, says):
    line = punica.refuses("serve", "--model", model(**values), "--listen", "127.0.0.1:0")
    assert says in line and "generation_config.json" in line


def test_a_folder_without_the_file_is_refused(punica, model, tmp_path):
    assert "generation_config.json" in punica.refuses("serve", "--model", model(), "--listen", "127.0.0.1:0", "--generation-config", tmp_path)
