"""Prompts that are scored: `echo` with `logprobs`, vLLM's `prompt_logprobs`. What a model says of tokens that it is given is
what it says of them when it makes them itself; test_golden_logits.c compares the same with Transformers."""
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT
from serving import Server, raw

SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
LONG = " ".join([SENTENCE] * 6)         # longer than a step's share of scored rows


def post(server, path, **body):
    status, _, text = raw(server.address, "POST", path, json.dumps(body).encode())
    assert status == 200, text
    return json.loads(text)


def complete(server, prompt=SENTENCE, model="demo", **params):
    return post(server, "/v1/completions", model=model, prompt=prompt, temperature=0, **params)


def ids_of(listed, prompt=None):
    """The prompt's own tokens: the first is not listed."""
    return [int(next(iter(one))) for one in listed[1:]]


def values(listed):
    return [next(iter(one.values()))["logprob"] for one in listed[1:]]


@pytest.mark.parametrize("model", ["demo", "sql"])
def test_tokens_are_scored_as_they_were_made(server, model):
    made = complete(server, model=model, max_tokens=12, logprobs=3, ignore_eos=True)["choices"][0]
    whole = SENTENCE + made["text"]
    scored = complete(server, whole, model=model, max_tokens=0, logprobs=3, echo=True)
    choice = scored["choices"][0]
    assert choice["text"] == whole and choice["finish_reason"] == "length"
    assert scored["usage"]["completion_tokens"] == 0
    lists, n = choice["logprobs"], len(made["logprobs"]["tokens"])
    assert lists["tokens"][-n:] == made["logprobs"]["tokens"]
    assert lists["token_logprobs"][-n:] == pytest.approx(made["logprobs"]["token_logprobs"], abs=1e-4)
    assert [top.keys() for top in lists["top_logprobs"][-n:]] == [top.keys() for top in made["logprobs"]["top_logprobs"]]
    assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
    assert len(lists["tokens"]) == scored["usage"]["prompt_tokens"]
    for token, at in zip(lists["tokens"], lists["text_offset"]):
        assert token.startswith("<") or whole[at:].startswith(token)


def test_output_comes_behind_the_echo(server):
    plain = complete(server, max_tokens=5, logprobs=1)["choices"][0]
    echoed = complete(server, max_tokens=5, logprobs=1, echo=True)["choices"][0]
    assert echoed["text"] == SENTENCE + plain["text"]
    assert echoed["logprobs"]["token_logprobs"][-5:] == pytest.approx(plain["logprobs"]["token_logprobs"])
    assert echoed["logprobs"]["text_offset"][-5] == len(SENTENCE)


def test_an_end_token_is_counted_with_an_echo(server):
    """Clients that score count from the end: there is one entry for each token that was made, shown or not."""
    text = SENTENCE + complete(server, model="sql", max_tokens=200)["choices"][0]["text"]
    whole = complete(server, text, model="sql", max_tokens=1, logprobs=1, echo=True)
    assert whole["choices"][0]["finish_reason"] == "stop" and whole["choices"][0]["text"] == text
    assert len(whole["choices"][0]["logprobs"]["tokens"]) == whole["usage"]["prompt_tokens"] + 1


def test_a_stream_tells_the_prompt_first(server):
    whole = complete(server, LONG, max_tokens=4, logprobs=2, echo=True)["choices"][0]
    body = {"model": "demo", "prompt": LONG, "temperature": 0, "max_tokens": 4, "logprobs": 2, "echo": True, "stream": True}
    _, _, text = raw(server.address, "POST", "/v1/completions", json.dumps(body).encode())
    events = [json.loads(line[6:])["choices"][0] for line in text.decode().splitlines() if line.startswith("data: {")]
    assert events[0]["text"].startswith(LONG) and "".join(e["text"] for e in events) == whole["text"]
    assert [v for e in events for v in e["logprobs"]["token_logprobs"]] == whole["logprobs"]["token_logprobs"]


def test_prompt_logprobs_as_vllm_tells_them(server):
    choice = complete(server, max_tokens=1, prompt_logprobs=2)["choices"][0]
    echoed = complete(server, max_tokens=1, logprobs=0, echo=True)["choices"][0]["logprobs"]
    listed = choice["prompt_logprobs"]
    assert listed[0] is None and choice["logprobs"] is None
    assert values(listed) == pytest.approx(echoed["token_logprobs"][1:-1])
    for one, token in zip(listed[1:], echoed["tokens"][1:]):
        own = next(iter(one.values()))
        assert own["decoded_token"] == token and len(one) == (2 if own["rank"] <= 2 else 3)
        by_rank = sorted(one.values(), key=lambda t: t["rank"])
        assert [t["rank"] for t in by_rank[:2]] == [1, 2]
        assert [t["logprob"] for t in by_rank] == sorted((t["logprob"] for t in by_rank), reverse=True)


def test_of_a_chat_there_is_one_list(server):
    chat = post(server, "/v1/chat/completions", model="emoji", messages=[{"role": "user", "content": SENTENCE}], max_tokens=3,
                prompt_logprobs=0, n=2, temperature=0)
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"] and len(chat["choices"]) == 2
    assert chat["prompt_logprobs"][0] is None and all(len(one) == 1 for one in chat["prompt_logprobs"][1:])
    assert "prompt_logprobs" not in chat["choices"][0]


def test_a_prompt_of_one_token(server):
    for params in ({"echo": True, "logprobs": 1}, {"prompt_logprobs": 1}, {"echo": True}):
        got = complete(server, [5], max_tokens=0, **params)
        assert got["usage"]["completion_tokens"] == 0 and got["choices"][0]["finish_reason"] == "length"
        assert got["choices"][0].get("prompt_logprobs", [None]) == [None]


def test_several_prompts_of_ids(server):
    one = complete(server, max_tokens=1, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    prompts = [[1] + ids_of(one)[:n] for n in (3, 9, 1, 6)]
    both = complete(server, prompts, max_tokens=1, logprobs=1, echo=True)["choices"]
    for prompt, choice in zip(prompts, both):
        alone = complete(server, prompt, max_tokens=1, logprobs=1, echo=True)["choices"][0]
        assert choice["logprobs"] == alone["logprobs"] and len(choice["logprobs"]["tokens"]) == len(prompt) + 1


MODELS = ("demo", "sql", "french")


@pytest.mark.parametrize("options", [["--kv-pages", 30, "--max-batch", 8], ["--tp", 2]], ids=["few-pages", "split"])
def test_company_and_evictions_do_not_matter(server, options):
    """Scored and other requests together, where pages run short; and of a model that is split."""
    def ask(at, i):
        params = {} if i % 4 == 3 else {"prompt_logprobs": 1}
        prompt = LONG if i % 2 else SENTENCE
        return complete(at, prompt, model=MODELS[i % 3], max_tokens=70, ignore_eos=True, **params)["choices"][0]
    wanted = [ask(server, i) for i in range(12)]
    small = Server("--model", ROOT / "demo/model", "--adapters", ROOT / "demo/adapters", "--served-model-name", "demo", *options)
    try:
        for _ in range(10):                     # on a busy machine requests may come too far apart to meet
            with ThreadPoolExecutor(8) as pool:
                for want, got in zip(wanted, pool.map(lambda i: ask(small, i), range(12))):
                    assert got["text"] == want["text"]
                    if "prompt_logprobs" in want:
                        assert values(got["prompt_logprobs"]) == pytest.approx(values(want["prompt_logprobs"]), abs=1e-4)
            if "--kv-pages" not in options or small.metric("punica_requests_evicted_total") > 0:
                break
        else:
            pytest.fail("nothing was evicted")
        assert small.stop() == 0
    finally:
        small.end()
