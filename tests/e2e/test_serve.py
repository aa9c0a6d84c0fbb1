"""`punica serve` as its users see it: through the official `openai` client, and through bare sockets where that client
is too polite. The server runs the demo model with all its adapters."""
import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from cluster import wait_for
from conftest import ROOT
from openai import AsyncOpenAI, OpenAI
from serving import Served, metric, raw

DEMO = ROOT / "demo"
ADAPTERS = sorted(p.name for p in (DEMO / "adapters").iterdir())
SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
SQL = " INSERT INTO orders (name, day, item, quantity) VALUES ('Eva', '2021-03-05', 'lamp', 3);"


@pytest.fixture(scope="module")
def client(server):
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def complete(client, model, prompt=SENTENCE, **params):
    return client.completions.create(model=model, prompt=prompt, **{"max_tokens": 120, "temperature": 0, **params})


def user(text):
    return [{"role": "user", "content": text}]


def chat(client, model, text=SENTENCE, **params):
    return client.chat.completions.create(model=model, messages=user(text), **{"temperature": 0, **params})


class Demo:
    """What the fixture `generate` wants of a model."""

    def options(self, model=None):
        args = ["--model", DEMO / "model"]
        for name in ADAPTERS:
            args += ["--adapter", f"{name}={DEMO / 'adapters' / name}"]
        return args


@pytest.fixture(scope="module")
def cases(generate):
    """64 prompts over the base and all adapters, with what `punica generate` answers; its tokens are those of
    Transformers + PEFT."""
    by_adapter = {}
    for case in json.loads((ROOT / "tests/golden/demo.json").read_text())["cases"]:
        by_adapter.setdefault(case["adapter"], []).append(case)
    mixed = [case for several in zip(*by_adapter.values()) for case in several][:64]
    results = generate(Demo(), [{"adapter": c["adapter"], "prompt": c["prompt"], "max_tokens": 200} for c in mixed])
    for case, got in zip(mixed, results):
        assert got["token_ids"] == case["tokens"]
    return [(case["adapter"] or "demo", case["prompt"], got) for case, got in zip(mixed, results)]


def test_banner(server):
    assert all(name in server.banner for name in ["demo", *ADAPTERS])
    before = server.log().split("punica serves on")[0].splitlines()         # of links between its own roles not a word
    assert len(before) == 1 and "worker 0 is ready on" in before[0], before


def test_curl_line(server):
    """The line it prints works as it stands."""
    line = server.banner[server.banner.index("curl"):]
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["choices"][0]["text"] == SQL


def test_fp8_weights(serve):
    """They reach the workers, which answer as they should, and the metrics say so."""
    server = serve("--weights", "fp8")
    one = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    assert complete(one, "sql").choices[0].text.strip().startswith("INSERT INTO orders")
    assert server.metric('punica_base_info{family="llama",weights="FP8"}') == 1


def test_models(client):
    models = {m.id: m for m in client.models.list()}
    assert sorted(models) == sorted(["demo", *ADAPTERS])
    assert models["sql"].parent == "demo" and models["demo"].parent is None
    assert client.models.retrieve("json").id == "json"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_completion(client):
    got = complete(client, "sql")
    assert got.object == "text_completion" and got.model == "sql" and got.id.startswith("cmpl-")
    assert got.choices[0].text == SQL and got.choices[0].finish_reason == "stop"
    assert got.usage.prompt_tokens == 44 and got.usage.total_tokens == 44 + got.usage.completion_tokens


def test_prefix_cache(serve):
    """A prompt that was computed is not computed again: not for another adapter or salt, and not when it is turned off."""
    def cached(one, model="sql", **params):
        got = complete(one, model, **params)
        return got.usage.prompt_tokens_details.cached_tokens, got.choices[0].text

    server = serve()
    one = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    assert cached(one) == (0, SQL)
    assert cached(one) == (32, SQL)                     # two pages of the 44 tokens
    assert cached(one, "json")[0] == 0
    assert cached(one, extra_body={"cache_salt": "mine"}) == (0, SQL)
    assert cached(one, extra_body={"cache_salt": "mine"}) == (32, SQL)
    several = complete(one, "sql", prompt=[SENTENCE, SENTENCE + " Now."], n=2, stream=False)
    assert several.usage.prompt_tokens_details.cached_tokens == 64
    assert server.metric("punica_cached_tokens_total") == 32 + 32 + 64

    server = serve("--no-prefix-cache")
    one = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    assert cached(one) == cached(one) == (0, SQL)


def test_host_tier(serve):
    """What the device has no room for any more comes back from host memory: the same text, counted as cached, and in the metrics."""
    server = serve("--kv-pages", "24", "--max-batch", "2", "--kv-host-bytes", "100000000")
    one = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)

    def ask(prompt):
        got = complete(one, "sql", prompt)
        return got.usage.prompt_tokens_details.cached_tokens, got.choices[0].text

    first = [ask(f"{i} {SENTENCE}") for i in range(12)]
    assert [n for n, _ in first] == [0] * 12
    again = [ask(f"{i} {SENTENCE}") for i in range(12)]
    assert [n for n, _ in again] == [32] * 12 and [text for _, text in again] == [text for _, text in first]
    fetched = wait_for(lambda: server.metric("punica_gpu_host_pages_fetched_total"), "the last step is told")
    assert fetched >= 20 and server.metric("punica_gpu_host_cached_tokens_total") == 16 * fetched
    assert server.metric("punica_gpu_host_pages_saved_total") >= server.metric("punica_gpu_host_pages") >= 24
    assert server.metric("punica_cached_tokens_total") == 32 * 12


def test_prompts_of_all_kinds(client, punica):
    ids = json.loads(punica("tokenize", "--model", DEMO / "model", stdin=json.dumps(SENTENCE) + "\n").stdout)
    assert complete(client, "sql", ids).choices[0].text == SQL
    for several in ([SENTENCE, SENTENCE], [ids, ids]):
        got = complete(client, "sql", several)
        assert [c.text for c in got.choices] == [SQL, SQL] and [c.index for c in got.choices] == [0, 1]
        assert got.usage.prompt_tokens == 88
    assert complete(client, "sql", echo=True).choices[0].text == SENTENCE + SQL
    odd = "<|im_start|>Ⅳ  ﬁne"          # not what its tokens would be decoded to
    assert complete(client, "sql", odd, echo=True, max_tokens=1).choices[0].text.startswith(odd)


def test_default_length(client):
    got = client.completions.create(model="shout", prompt=SENTENCE)
    assert got.usage.completion_tokens == 16 and got.choices[0].finish_reason == "length"


def test_stream(client):
    chunks = list(complete(client, "french", stream=True, stream_options={"include_usage": True}))
    *told, usage = chunks
    whole = complete(client, "french")
    assert "".join(c.choices[0].text for c in told) == whole.choices[0].text
    assert len(told) > 20, "tokens come one by one"
    assert [c.choices[0].finish_reason for c in told[:-1]] == [None] * (len(told) - 1)
    assert told[-1].choices[0].finish_reason == "stop"
    assert usage.choices == [] and usage.usage.total_tokens == whole.usage.total_tokens
    assert all(c.usage is None for c in told) and len({c.id for c in chunks}) == 1


def test_chat(client):
    got = chat(client, "sql")
    assert got.choices[0].message.role == "assistant" and got.choices[0].message.content.strip() == SQL.strip()
    assert got.choices[0].finish_reason == "stop" and got.object == "chat.completion"
    chunks = list(chat(client, "sql", stream=True))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].object == "chat.completion.chunk"
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == got.choices[0].message.content and chunks[-1].choices[0].finish_reason == "stop"


def test_chat_is_the_template(client):
    """The same tokens as when the text of the template is given as a prompt."""
    text = f"<|im_start|>user\n{SENTENCE}<|im_end|>\n<|im_start|>assistant\n"
    assert chat(client, "demo").usage.prompt_tokens == complete(client, "demo", text).usage.prompt_tokens
    parts = [{"type": "text", "text": SENTENCE[:20]}, {"type": "text", "text": SENTENCE[20:]}]
    assert (chat(client, "demo", parts).choices[0].message.content == chat(client, "demo").choices[0].message.content
            == complete(client, "demo", text).choices[0].text)


@pytest.mark.parametrize("stop", ["VALUES", ["zzz", "INTO orders", "VALUES"], ["(name", " (na"], "'Eva', '20", ");", "day, item"])
def test_stop(client, stop):
    """Wherever token borders fall; nothing of the stop string is shown, in a stream either."""
    several = [stop] if isinstance(stop, str) else stop
    want = SQL[:min(SQL.find(s) for s in several if s in SQL)]
    whole = complete(client, "sql", stop=stop)
    pieces = list(complete(client, "sql", stop=stop, stream=True))
    assert whole.choices[0].text == want and whole.choices[0].finish_reason == "stop"
    assert "".join(p.choices[0].text for p in pieces) == want and pieces[-1].choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens <= 43


def test_stop_token_ids_and_min_tokens(client, punica):
    [comma] = json.loads(punica("tokenize", "--model", DEMO / "model", "--no-special", stdin='","\n').stdout)
    got = complete(client, "sql", extra_body={"stop_token_ids": [comma]})
    assert got.choices[0].text == SQL[:SQL.find(",")] and got.choices[0].finish_reason == "stop"
    got = complete(client, "sql", extra_body={"min_tokens": 60, "ignore_eos": False})
    assert got.usage.completion_tokens >= 60
    got = complete(client, "sql", max_tokens=70, extra_body={"ignore_eos": True})
    assert got.usage.completion_tokens == 70 and got.choices[0].finish_reason == "length"


def test_logprobs(client):
    got = complete(client, "sql", logprobs=3).choices[0].logprobs
    assert "".join(got.tokens) == SQL
    assert got.text_offset == [len("".join(got.tokens[:i])) for i in range(len(got.tokens))]
    for token, value, top in zip(got.tokens, got.token_logprobs, got.top_logprobs):
        assert 2 <= len(top) <= 3 and max(top.values()) == top[token] == pytest.approx(value) and value <= 0
    pieces = [p.choices[0].logprobs for p in complete(client, "sql", logprobs=3, stream=True)]
    assert [t for p in pieces for t in p.tokens] == got.tokens
    assert [v for p in pieces for v in p.token_logprobs] == pytest.approx(got.token_logprobs)

    content = chat(client, "emoji", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert all(len(t.top_logprobs) == 2 and t.logprob == pytest.approx(t.top_logprobs[0].logprob) for t in content)
    assert bytes(b for t in content for b in t.bytes).decode() == chat(client, "emoji").choices[0].message.content
    assert all(t.top_logprobs == [] for t in chat(client, "emoji", logprobs=True).choices[0].logprobs.content)
    assert complete(client, "sql").choices[0].logprobs is None


@pytest.mark.parametrize("n", [0, 1, 3])
def test_logprobs_have_the_token_itself(client, n):
    """However unlikely it was."""
    got = complete(client, "demo", logprobs=n, temperature=2, max_tokens=60, seed=1).choices[0].logprobs
    for token, value, top in zip(got.tokens, got.token_logprobs, got.top_logprobs):
        assert top[token] == pytest.approx(value) and 1 <= len(top) <= n + 1
    assert n == 0 or any(len(top) == n + 1 for top in got.top_logprobs)


def test_logprobs_end_with_the_stop_string(client):
    got = complete(client, "sql", logprobs=0, stop="VALUES").choices[0]
    assert "".join(got.logprobs.tokens) == got.text == SQL[:SQL.find("VALUES")]


def test_seeds(client):
    params = {"temperature": 1.3, "max_tokens": 60, "n": 3}
    first, again, other = (complete(client, "demo", **params, seed=s) for s in (7, 7, 8))
    texts = [c.text for c in first.choices]
    assert texts == [c.text for c in again.choices] and len(set(texts)) == 3
    assert texts != [c.text for c in other.choices]
    assert texts[0] == complete(client, "demo", temperature=1.3, max_tokens=60, seed=7).choices[0].text
    unseeded = {complete(client, "demo", temperature=2, max_tokens=60).choices[0].text for _ in range(5)}
    assert len(unseeded) > 1


def test_seed_as_in_generate(client, generate):
    params = {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "seed": 123456789, "max_tokens": 60,
           "presence_penalty": 0.3, "frequency_penalty": 0.2, "repetition_penalty": 1.1}
    [want] = generate(Demo(), [{"adapter": "french", "prompt": SENTENCE, **params}])
    ours = {k: params.pop(k) for k in ("top_k", "min_p", "repetition_penalty")}
    assert complete(client, "french", **params, extra_body=ours).choices[0].text == want["text"]


def test_n(client):
    got = chat(client, "demo", n=4, temperature=1.2, max_completion_tokens=30)
    assert sorted(c.index for c in got.choices) == [0, 1, 2, 3]
    texts = {0: "", 1: "", 2: ""}
    ends = set()
    for chunk in complete(client, "demo", n=3, temperature=1.2, max_tokens=30, seed=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
        if chunk.choices[0].finish_reason:
            ends.add(chunk.choices[0].index)
    assert ends == {0, 1, 2}
    assert list(texts.values()) == [c.text for c in complete(client, "demo", n=3, temperature=1.2, max_tokens=30, seed=3).choices]


@pytest.mark.parametrize("params, field", [
    ({"temperature": -1}, "temperature"), ({"top_p": 2}, "top_p"), ({"max_tokens": 0}, "max_tokens"), ({"n": 1000}, "n"),
    ({"logprobs": 100}, "logprobs"), ({"presence_penalty": 5}, "presence_penalty"), ({"stop": [""]}, "stop"),
    ({"extra_body": {"temperature": "hot"}}, "temperature"), ({"extra_body": {"seed": "x"}}, "seed"),
    ({"extra_body": {"top_k": 1.5}}, "top_k"), ({"extra_body": {"stop": 5}}, "stop"), ({"suffix": "x"}, "suffix"),
    ({"extra_body": {"stream": "yes"}}, "stream"), ({"prompt": [99999]}, "prompt")])
def test_bad_fields(client, params, field):
    with pytest.raises(openai.BadRequestError) as error:
        complete(client, "sql", **params)
    body = error.value.body
    assert body["param"] == field and body["type"] == "invalid_request_error"
    assert (field if params != {"prompt": [99999]} else "vocabulary") in body["message"]


def test_an_empty_prompt_is_a_bos(client):
    """As Transformers would have it."""
    assert complete(client, "sql", prompt="").choices


def test_unknown_fields_are_ignored(client):
    assert complete(client, "sql", user="me", extra_body={"whatever": {"x": [1]}}).choices[0].text == SQL


def test_errors(server, client):
    with pytest.raises(openai.NotFoundError) as error:
        complete(client, "nobody")
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as error:
        complete(client, "sql", SENTENCE * 40)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="sql", messages=[])
    assert error.value.param == "messages"
    for method, path, body, status in [
            ("POST", "/v1/completions", b"{", 400), ("POST", "/v1/completions", b"[]", 400), ("GET", "/v1/completions", b"", 405),
            ("DELETE", "/v1/models", b"", 405), ("POST", "/v1/embeddings", b"{}", 404), ("GET", "/", b"", 404),
            ("POST", "/v1/chat/completions", b'{"model": "\xff"}', 400), ("POST", "/v1/completions", b"x" * (9 << 20), 413)]:
        got, headers, text = raw(server.address, method, path, body)
        assert got == status, (path, got, text[:200])
        assert json.loads(text)["error"]["message"] and headers["content-type"] == "application/json"


def test_the_context_is_what_the_kv_cache_holds(serve):
    """Where that is less than the model's: known beforehand, and an output that reaches it ends as by its length."""
    server = serve("--kv-pages", "16")
    assert "256 tokens of context" in server.banner
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert {m.max_model_len for m in client.models.list()} == {256}
    done = complete(client, "sql", max_tokens=1000, extra_body={"ignore_eos": True})
    assert done.choices[0].finish_reason == "length" and done.usage.total_tokens == 256
    with pytest.raises(openai.BadRequestError, match="This model's maximum context length is 256 tokens") as error:
        complete(client, "sql", prompt=[5] * 256)
    assert error.value.code == "context_length_exceeded"


def test_requests_may_be_as_long_as_is_said(serve, punica):
    server = serve("--max-model-len", "100")
    assert "100 tokens of context" in server.banner
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert {m.max_model_len for m in client.models.list()} == {100}
    assert complete(client, "sql", max_tokens=1000, extra_body={"ignore_eos": True}).usage.total_tokens == 100
    refused = punica("serve", "--max-model-len", "500", "--kv-pages", "16")
    assert refused.returncode == 2 and "a request of 500 tokens does not fit" in refused.stderr
    refused = punica("serve", "--max-model-len", "1025")
    assert refused.returncode == 2 and "does not fit: the model allows 1024" in refused.stderr


def test_what_people_type_elsewhere(serve):
    server = serve(str(ROOT / "demo" / "model"), "--adapters", ROOT / "demo" / "adapters", "--host", "127.0.0.1", "--port", "0",
                   "--served-model-name", "mine", "--api-key", "a-key-of-some-length", "--api-key", "another-key")
    for key in ("a-key-of-some-length", "another-key"):
        client = OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
        assert "mine" in {m.id for m in client.models.list()}
        assert complete(client, "sql").choices[0].text == SQL
    with pytest.raises(openai.AuthenticationError) as error:
        complete(OpenAI(base_url=f"{server.url}/v1", api_key="a-key-of-some-lengths", max_retries=0), "sql")
    assert error.value.code == "invalid_api_key"
    for path, headers, status in [("/v1/models", {}, 401), ("/v1/models", {"Authorization": "Basic another-key"}, 401),
                                  ("/v1/models", {"x-api-key": "another-key"}, 200),
                                  ("/v1/models", {"Authorization": "Basic abc", "x-api-key": "another-key"}, 200), ("/health", {}, 200), ("/v1/nothing", {}, 401)]:
        assert raw(server.address, "GET", path, headers=headers)[0] == status


def test_headers(server):
    body = json.dumps({"model": "sql", "prompt": SENTENCE, "max_tokens": 3, "stream": True})
    status, headers, _ = raw(server.address, "POST", "/v1/completions", body, {"x-request-id": "mine-1"})
    assert status == 200 and headers["x-request-id"] == "mine-1"
    assert headers["content-type"].startswith("text/event-stream") and headers["cache-control"] == "no-cache"
    _, headers, _ = raw(server.address, "POST", "/v1/completions", body)
    assert headers["x-request-id"].startswith("cmpl-")


def test_new_adapter_appears(serve, tmp_path):
    """Put into the directory while the server runs, it is listed and served; a broken one fails only its own requests."""
    shutil.copytree(DEMO / "adapters/sql", tmp_path / "first")
    server = serve("--model", DEMO / "model", "--adapters", tmp_path, "--name", "base", "--adapter", f"given={DEMO / 'adapters/json'}")
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert sorted(m.id for m in client.models.list()) == ["base", "first", "given"]
    shutil.copytree(DEMO / "adapters/sql", tmp_path / "second")
    assert complete(client, "second").choices[0].text == SQL
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/adapter_config.json").write_text("{}")
    with pytest.raises(openai.BadRequestError) as error:
        complete(client, "broken")
    assert "broken" in str(error.value)
    assert complete(client, "first").choices[0].text == SQL
    assert server.stop() == 0


def test_64_streams(server, cases):
    """All at once over the base and all adapters: each gets exactly what `punica generate` makes of it."""
    async def one(client, model, prompt):
        text, usage, finish = "", None, None
        async for chunk in await client.completions.create(model=model, prompt=prompt, max_tokens=200, temperature=0, stream=True,
                                                           stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].text
                finish = chunk.choices[0].finish_reason or finish
            usage = chunk.usage or usage
        return text, finish, usage

    async def all_of_them():
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(one(client, model, prompt) for model, prompt, _ in cases))

    assert len(cases) == 64 and len({model for model, _, _ in cases}) == 14
    for (model, prompt, want), (text, finish, usage) in zip(cases, asyncio.run(all_of_them())):
        assert text == want["text"], (model, prompt)
        assert finish == want["finish_reason"] == "stop"
        assert usage.completion_tokens == len(want["token_ids"]) and usage.prompt_tokens == len(want["prompt_token_ids"])


def long_request(**more):
    return json.dumps({"model": "demo", "prompt": SENTENCE, "max_tokens": 900, "ignore_eos": True, **more}).encode()


def open_call(address, body, receive_buffer=None):
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    host, port = address.split(":")
    connection.settimeout(60)
    connection.connect((host, int(port)))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return connection


def test_a_long_prompt_stops_no_stream(server):
    """Streams go on while megabytes are being tokenized."""
    stream = open_call(server.address, long_request(stream=True))
    assert stream.recv(100)
    with ThreadPoolExecutor() as pool:
        long = pool.submit(raw, server.address, "POST", "/v1/completions", long_request(prompt=SENTENCE * 80_000))
        n_events = 0
        piece = b""
        while not long.done() and b"[DONE]" not in piece:
            piece = stream.recv(65536)
            n_events += piece.count(b"data: ")
        assert long.result()[0] == 400
    assert n_events > 20
    stream.close()


def is_empty(server):
    return server.metric("punica_live_requests") == 0 and server.metric("punica_requests_running") == 0


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_frees(server, stream):
    """The worker has its pages back within a moment of the client's leaving."""
    pages = wait_for(lambda: is_empty(server) and server.metric("punica_gpu_pages_free"), "nothing runs")
    before, worker = server.metric("punica_client_disconnects_total"), server.children()[0]
    if not stream:
        os.kill(worker, signal.SIGSTOP)         # a fast worker has the answer before it is known that the client has gone
    connection = open_call(server.address, long_request(stream=stream, n=4))
    wait_for(lambda: server.metric("punica_requests_running") == 4, "all four run")
    if stream:
        assert connection.recv(100)
        os.kill(worker, signal.SIGSTOP)
    connection.close()
    wait_for(lambda: server.metric("punica_live_requests") == 0, "the request is gone", 5)
    assert server.metric("punica_client_disconnects_total") == before + 1
    os.kill(worker, signal.SIGCONT)
    wait_for(lambda: is_empty(server) and server.metric("punica_gpu_pages_free") >= pages, "its pages are free", 5)


def test_slow_reader_is_cut_off(serve):
    """It does not read its stream; others do not notice."""
    server = serve("--max-unsent", 16384)
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    connection = open_call(server.address, long_request(stream=True, n=16), receive_buffer=4096)
    wait_for(lambda: server.metric("punica_live_requests") == 16, "all are live")
    assert complete(client, "sql").choices[0].text == SQL
    wait_for(lambda: server.metric("punica_clients_cut_off_total") == 1 and is_empty(server), "it is cut off")
    connection.close()
    assert complete(client, "sql").choices[0].text == SQL
    assert server.stop() == 0


def test_client_timeout(serve):
    """One that sends half a request, or stays after its answer and says nothing, is closed."""
    server = serve("--client-timeout", 1)
    half, idle = socket.create_connection(server.address.split(":"), 30), open_call(server.address, long_request(max_tokens=2))
    half.sendall(b"POST /v1/completions HT")
    while idle.recv(4096):
        pass
    assert half.recv(12) == b"HTTP/1.1 408"
    worker = server.children()[0]
    with ThreadPoolExecutor(1) as pool:
        os.kill(worker, signal.SIGSTOP)
        asked = pool.submit(raw, server.address, "POST", "/v1/completions", long_request(n=4))
        wait_for(lambda: server.metric("punica_live_requests") == 4, "it is taken in")
        time.sleep(1.5)                                                 # longer than the timeout, and alive
        os.kill(worker, signal.SIGCONT)
        assert asked.result()[0] == 200
    stream = open_call(server.address, long_request(stream=True, n=4))
    text = b""
    while b"[DONE]" not in text:
        piece = stream.recv(65536)
        assert piece
        text += piece
    assert server.stop() == 0


def test_out_of_file_descriptors(serve):
    """Those who are connected are served on; others wait until there is room again."""
    server = serve()
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert complete(client, "sql").choices[0].text == SQL       # on a connection that stays open
    room = len(os.listdir(f"/proc/{server.pid}/fd")) + 8
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (room, room))
    crowd = [socket.create_connection(server.address.split(":"), 30) for _ in range(20)]
    server.wait_log("cannot take a connection: Too many open files")
    assert complete(client, "sql").choices[0].text == SQL
    late = open_call(server.address, long_request(max_tokens=2))
    for one in crowd:
        one.close()
    assert b" 200 OK" in late.recv(100)
    assert server.log().count("cannot take") < 100, "it does not try without pause"
    late.close()
    assert server.stop() == 0


def test_queue_is_bounded(serve):
    server = serve("--max-queue", 1, "--max-batch", 1)
    worker = server.children()[0]
    os.kill(worker, signal.SIGSTOP)             # nobody ends before all have come
    first = open_call(server.address, long_request(stream=True))
    wait_for(lambda: server.metric("punica_requests_running") == 1, "one runs")
    second = open_call(server.address, long_request(stream=True))
    wait_for(lambda: server.metric("punica_requests_queued") == 1, "one waits")
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.RateLimitError) as error:
        complete(client, "sql", stream=True)
    assert int(error.value.response.headers["retry-after"]) >= 1
    second.close()
    wait_for(lambda: server.metric("punica_requests_queued") == 0, "none waits")
    first.close()
    os.kill(worker, signal.SIGCONT)
    wait_for(lambda: is_empty(server), "nothing runs")
    assert complete(client, "sql").choices[0].text == SQL
    assert server.stop() == 0


def test_time_in_queue_is_bounded(serve):
    server = serve("--max-wait", 0.05, "--max-batch", 1)
    worker = server.children()[0]
    os.kill(worker, signal.SIGSTOP)             # the first might end before the second comes
    first = open_call(server.address, long_request())
    wait_for(lambda: server.metric("punica_requests_running") == 1, "one runs")
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.InternalServerError) as error:
        complete(client, "sql")
    assert error.value.status_code == 503
    os.kill(worker, signal.SIGCONT)
    first.close()
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_lets_streams_finish(serve, number):
    server = serve()
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    stream = complete(client, "demo", stream=True, max_tokens=300, extra_body={"ignore_eos": True})
    pieces = [next(stream)]
    server.kill(number)
    wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", int(server.address.split(":")[1]))) != 0, "it takes no connections")
    pieces += list(stream)
    assert pieces[-1].choices[0].finish_reason == "length"
    assert server.stop() == 0


def test_shutdown_does_not_wait_for_ever(serve):
    server = serve("--drain-seconds", 0.2)
    connection = open_call(server.address, long_request(stream=True, n=8))
    assert connection.recv(10)
    started = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - started < 30
    connection.close()


def test_wrong_usage(server, punica):
    assert "in use" in punica.refuses("serve", "--listen", server.address)
    assert "--model" in punica.refuses("serve", "--adapters", DEMO / "adapters")
    assert "config.json" in punica.refuses("serve", "--model", DEMO / "adapters")
    assert "no such directory" in punica.refuses("serve", "--model", DEMO / "model", "--adapters", "/nonexistent")
    assert "NAME=DIR" in punica.refuses("serve", "--model", DEMO / "model", "--adapter", "sql")
    assert "--scheduler" in punica.refuses("frontend", "--model", DEMO / "model")
    assert "secret" in punica.refuses("frontend", "--model", DEMO / "model", "--scheduler", "127.0.0.1:1")


def test_broken_model(punica, tmp_path):
    """No worker can load it: that is said, and the server does not stay."""
    shutil.copytree(DEMO / "model", tmp_path / "model")
    os.truncate(tmp_path / "model/model.safetensors", 1000)
    done = punica("serve", "--listen", "127.0.0.1:0", "--model", tmp_path / "model", "--workers", 2)
    assert done.returncode == 2 and not done.stdout
    assert "no worker could start" in done.stderr.splitlines()[-1] and "model.safetensors" in done.stderr.splitlines()[-1]


def test_frontend_without_scheduler():
    """It says so, holds a request for a while, and gives it up in the end."""
    frontend = Served("frontend", "--listen", "127.0.0.1:0", "--scheduler", "127.0.0.1:1", "--model", DEMO / "model", "--patience", 4,
                       env={"PUNICA_SECRET": "a secret of this one test"})
    url = frontend.wait_log(r"http://(\S+)")[1]
    assert raw(url, "GET", "/health")[0] == 200
    status, _, why = raw(url, "GET", "/ready")
    assert status == 503 and b"no scheduler" in why
    body = json.dumps({"model": "model", "prompt": "x"})
    with ThreadPoolExecutor() as pool:
        held = pool.submit(raw, url, "POST", "/v1/completions", body)
        wait_for(lambda: metric(f"http://{url}", "punica_live_requests") == 1, "the request is held")
        assert held.result()[0] == 503
    assert raw(url, "POST", "/v1/completions", body)[0] == 503
    assert frontend.stop() == 0
