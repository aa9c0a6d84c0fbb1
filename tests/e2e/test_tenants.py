"""Tenants: their keys, what they see, their limits and usage; with the store in SQLite, and in PostgreSQL that goes away."""
import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import Cluster, wait_for
from conftest import ROOT
from serving import Server, metric, raw
from tenant_store import ADMIN, Store

SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
ADAPTERS = sorted(p.name for p in (ROOT / "demo/adapters").iterdir())


class Client:
    def __init__(self, address, key=None, header="Authorization"):
        self.address = address
        self.headers = {header: f"Bearer {key}" if header == "Authorization" else key} if key else {}

    def get(self, path):
        status, _, body = raw(self.address, "GET", path, headers=self.headers)
        return status, body

    def models(self):
        return [m["id"] for m in json.loads(self.get("/v1/models")[1])["data"]]

    def ask(self, model, path="/v1/completions", **params):
        """(status, headers, answer)"""
        body = {"model": model, "temperature": 0, "max_tokens": 8, **params}
        if path == "/v1/completions":
            body.setdefault("prompt", SENTENCE)
        status, headers, answer = raw(self.address, "POST", path, json.dumps(body), self.headers)
        return status, headers, json.loads(answer)

    @contextlib.contextmanager
    def stream(self, model, **params):
        """A function that reads it to its end; when the first tokens are there."""
        body = json.dumps({"model": model, "prompt": SENTENCE, "stream": True, "ignore_eos": True, **params})
        head = "".join(f"{name}: {value}\r\n" for name, value in {**self.headers, "Content-Length": len(body)}.items())
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as s:
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n{body}".encode())
            first = s.recv(65536)
            assert first.startswith(b"HTTP/1.1 200"), first

            def read():
                text = first
                while b"[DONE]" not in text:
                    piece = s.recv(65536)
                    assert piece, text[-300:]
                    text += piece
            yield read


@pytest.fixture(scope="module")
def admin_key(tmp_path_factory):
    path = tmp_path_factory.mktemp("admin") / "key"
    path.write_text(ADMIN)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store") / "store.db")


@pytest.fixture(scope="module")
def server(store, admin_key):
    server = Server("--store", store.url, "--admin-key-file", admin_key)
    yield server
    assert server.metric("punica_live_requests") == 0
    assert server.stop() == 0


def soon(condition, what):
    """Within a second, as is promised; and then some, since machines are busy."""
    return wait_for(condition, what, 10)


def test_no_key(server, store):
    for client in (Client(server.address), Client(server.address, "pk-" + "0" * 64), Client(server.address, "")):
        assert client.get("/v1/models")[0] == 401
        status, headers, answer = client.ask("sql")
        assert client.ask("sql", "/tokenize", prompt="x")[0] == 401
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and answer["error"]["code"] == "invalid_api_key"
    assert Client(server.address).get("/health")[0] == 200


def test_sees_its_own(server, store):
    """Others' adapters are as if they were not there, wherever they are named."""
    a = Client(server.address, store.tenant("sees-a", adapters=["sql", "sentiment"]))
    b = Client(server.address, store.tenant("sees-b", "--base", "yes", adapters=["r*"]), header="x-api-key")
    soon(lambda: a.get("/v1/models")[0] == b.get("/v1/models")[0] == 200, "the keys are known")
    assert a.models() == ["sentiment", "sql"] and b.models() == ["demo", "redact", "rot13"]
    assert a.ask("sql")[0] == 200 and b.ask("rot13")[0] == 200 and b.ask("demo")[0] == 200
    user = [{"role": "user", "content": "x"}]
    for client, hidden in ((a, "rot13"), (a, "demo"), (b, "sql"), (a, "../sql"), (a, "sql/"), (a, "")):
        for asked in ({"path": "/v1/completions"}, {"path": "/v1/responses", "input": "x"}, {"path": "/v1/messages", "messages": user},
                      {"path": "/v1/messages/count_tokens", "messages": user}, {"path": "/tokenize", "messages": user}, {"path": "/v1/completions", "prompt": "x" * 20000},
                      {"path": "/v1/chat/completions", "messages": user},
                      {"path": "/v1/chat/completions", "messages": user, "tools": [{"type": "function", "function": {"name": "f"}}]}):
            missing, there = client.ask("nobody", **asked), client.ask(hidden, **asked)
            assert missing[0] == there[0] == 404
            assert json.dumps(missing[2]).replace("nobody", hidden) == json.dumps(there[2])
            assert set(missing[1]) == set(there[1])
    for hidden in ("rot13", "demo", "..%2fsql"):
        missing, there = a.get("/v1/models/nobody"), a.get(f"/v1/models/{hidden}")
        assert missing[0] == there[0] == 404 and missing[1].replace(b"nobody", hidden.replace("%2f", "/").encode()) == there[1]
    assert a.get("/v1/models/sql")[0] == 200


def test_prefixes_are_kept_apart(server, store):
    """What one tenant has asked is computed anew for another: how long that takes tells nothing. Not even by the other's name as a salt."""
    first, second = (Client(server.address, store.tenant(name, "--base", "yes", adapters=["sql"])) for name in ("prefix-a", "prefix-b"))
    soon(lambda: second.get("/v1/models")[0] == 200, "the keys are known")

    def cached(client, model, **params):
        return client.ask(model, prompt="Prefixes: " + SENTENCE, **params)[2]["usage"]["prompt_tokens_details"]["cached_tokens"]

    total = 0
    for model in ("sql", "demo"):
        assert cached(first, model) == 0
        n = cached(first, model)
        assert n > 0
        total += n
        assert cached(second, model) == 0 and cached(second, model) > 0
        assert cached(second, model, cache_salt="prefix-a\n") == 0
    soon(lambda: sum(json.loads(line)["cached_tokens"] for line in store("usage", "prefix-a", "--json").splitlines()) == total, "usage tells of it")


def test_grants_come_and_go(server, store):
    client = Client(server.address, store.tenant("grants"))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    assert client.models() == [] and client.ask("sql")[0] == 404
    begin = time.monotonic()
    store("grant", "grants", "sql")
    changed = time.monotonic()
    soon(lambda: client.ask("sql")[0] == 200, "the grant is known")
    assert time.monotonic() - changed < 10 + (changed - begin)
    store("ungrant", "grants", "sql")
    soon(lambda: client.ask("sql")[0] == 404, "it was taken back")


def test_keys_end(server, store):
    """A key that is revoked or expires takes no new calls; what has begun goes on to its end."""
    first = store.tenant("keys", adapters=["sql"])
    second = store("key", "add", "keys", "second").strip()
    third = store("key", "add", "keys", "third", "--expires", "1s").strip()
    one, two, three = (Client(server.address, key) for key in (first, second, third))
    soon(lambda: one.get("/v1/models")[0] == 200, "the keys are known")
    with one.stream("sql", max_tokens=600) as read:
        store("key", "revoke", "keys", "main")
        soon(lambda: one.get("/v1/models")[0] == 401, "it is revoked")
        assert one.ask("sql")[0] == 401 and two.ask("sql")[0] == 200
        read()
    soon(lambda: three.get("/v1/models")[0] == 401, "it has expired")
    store("key", "expire", "keys", "second", "--in", "now")
    soon(lambda: two.get("/v1/models")[0] == 401, "it has expired")
    with pytest.raises(AssertionError, match="no such key"):
        store("key", "revoke", "keys", "main")


def test_removed_tenant(server, store):
    client = Client(server.address, store.tenant("removed", adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    with client.stream("sql", max_tokens=400) as read:
        store("remove", "removed")
        soon(lambda: client.get("/v1/models")[0] == 401, "it is gone")
        read()
    soon(lambda: store.usage("removed").get(("removed", "sql")) == (1, 44, 400), "what it used is kept")


def test_requests_per_minute(server, store):
    client = Client(server.address, store.tenant("rpm", "--requests-per-minute", 4, adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    status, headers, _ = client.ask("sql", max_tokens=1)
    assert status == 200 and headers["x-ratelimit-limit-requests"] == "4" and headers["x-ratelimit-remaining-requests"] == "3"
    assert headers["x-ratelimit-reset-requests"] == "15s" and "x-ratelimit-limit-tokens" not in headers
    for path, model, params in (("/v1/completions", "nobody", {}), ("/v1/completions", "sql", {"n": "many"}), ("/tokenize", "sql", {"prompt": "x"})):
        assert client.ask(model, path, **params)[1]["x-ratelimit-limit-requests"] == "4"            # in every answer to a call
    assert client.ask("sql", max_tokens=1, n=2)[0] == 200
    assert client.ask("sql", max_tokens=1, prompt=["a", "b"])[0] == 429            # of two, one is left
    assert client.ask("sql", max_tokens=1)[0] == 200
    status, headers, answer = client.ask("sql", max_tokens=1)
    assert status == 429 and answer["error"]["code"] == "rate_limit_exceeded" and answer["error"]["type"] == "rate_limit_error"
    assert 1 <= int(headers["Retry-After"]) <= 15 and headers["x-ratelimit-remaining-requests"] == "0"
    assert "4 requests per minute" in answer["error"]["message"]


def test_tokens_per_minute(server, store):
    client = Client(server.address, store.tenant("tpm", "--tokens-per-minute", 100, adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    began = time.monotonic()
    status, headers, answer = client.ask("sql", ignore_eos=True, max_tokens=50)
    assert status == 200 and headers["x-ratelimit-limit-tokens"] == "100" and headers["x-ratelimit-remaining-tokens"] == "56"
    assert answer["usage"]["total_tokens"] == 94
    status, headers, answer = client.ask("sql")          # a prompt of 44 tokens, and 6 are left, or what has come by since
    assert status == 429 and "100 tokens per minute" in answer["error"]["message"]
    assert 6 <= int(headers["x-ratelimit-remaining-tokens"]) <= 6 + (time.monotonic() - began) * 100 / 60 and 1 <= int(headers["Retry-After"]) <= 23
    assert client.ask("sql", prompt="Eva", max_tokens=100, ignore_eos=True)[0] == 200
    status, headers, _ = client.ask("sql", prompt="Eva", max_tokens=1)              # output counts, also beyond what was left
    assert status == 429 and headers["x-ratelimit-remaining-tokens"] == "0" and int(headers["Retry-After"]) > 20


def test_retry_after_is_for_all_that_is_asked(server, store):
    """Whoever waits so long comes in, also with several outputs, and when nothing at all is left."""
    client = Client(server.address, store.tenant("waits", "--requests-per-minute", 12, adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    began = time.monotonic()
    assert client.ask("sql", max_tokens=1, n=12)[0] == 200
    status, headers, _ = client.ask("sql", max_tokens=1, n=2)           # one comes in five seconds
    assert status == 429 and 10 - (time.monotonic() - began) <= int(headers["Retry-After"]) <= 10
    assert client.ask("sql", prompt="x " * 2000)[0] == 429


def test_at_once(server, store):
    client = Client(server.address, store.tenant("at-once", "--in-flight", 2, adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    assert client.ask("sql", n=3)[0] == 400
    with client.stream("sql", max_tokens=900):
        assert client.ask("sql")[0] == 200
        status, headers, answer = client.ask("sql", n=2)
        assert status == 429 and headers["Retry-After"] == "1" and "2 requests at once" in answer["error"]["message"]
    soon(lambda: client.ask("sql", n=2)[0] == 200, "who has left takes no place")
    store("limit", "at-once", "--in-flight", 0, "--waiting", 1)
    soon(lambda: client.ask("sql", n=2)[0] == 400, "the limit is another one")


def test_usage_to_the_token(server, store):
    """What clients count is what is in the store: streams, choices, several prompts, and those that leave."""
    keys = [store.tenant(f"usage-{i}", adapters=["*"]) for i in range(2)]
    clients = [Client(server.address, key) for key in keys]
    soon(lambda: clients[1].get("/v1/models")[0] == 200, "the keys are known")
    wanted = {}

    def add(tenant, model, n, usage):
        had = wanted.get((tenant, model), (0, 0, 0))
        wanted[tenant, model] = (had[0] + n, had[1] + usage["prompt_tokens"], had[2] + usage["completion_tokens"])

    def one(i):
        model = ADAPTERS[i % 5]
        params = [{}, {"n": 3, "temperature": 1}, {"prompt": ["Eva", SENTENCE]}, {"stop": "e"}, {"max_tokens": 40}, {"max_tokens": 0, "echo": True, "logprobs": 1}][i % 6]
        status, _, answer = clients[i % 2].ask(model, **params)
        assert status == 200
        return f"usage-{i % 2}", model, len(answer["choices"]), answer["usage"]

    def another(path, **params):
        """In the words of other APIs."""
        status, _, answer = clients[1].ask("sql", path, **params)
        assert status == 200, answer
        add("usage-1", "sql", 1, {"prompt_tokens": sum(answer["usage"].get(name, 0) for name in ("input_tokens", "cache_read_input_tokens")),
                                "completion_tokens": answer["usage"]["output_tokens"]})

    for _ in range(2):                          # the second finds most of its prompt in the cache
        another("/v1/messages", messages=[{"role": "user", "content": SENTENCE}])
    another("/v1/responses", input=SENTENCE)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(one, range(30)):
            add(*result)
    before = server.metric("punica_completion_tokens_total")
    for _ in range(4):          # they leave in the middle: what had come by then is counted, once
        with clients[0].stream("shout", max_tokens=900):
            pass
    wait_for(lambda: server.metric("punica_live_requests") == 0, "they have gone")
    came = int(server.metric("punica_completion_tokens_total") - before)
    assert 4 <= came < 4 * 900
    add("usage-0", "shout", 4, {"prompt_tokens": 4 * 44, "completion_tokens": came})
    soon(lambda: {**store.usage("usage-0"), **store.usage("usage-1")} == wanted, f"usage is {wanted}")
    time.sleep(0.6)
    assert {**store.usage("usage-0"), **store.usage("usage-1")} == wanted


def test_cached_tokens_are_those_that_clients_are_told(server, store):
    """However many outputs are made of a prompt, what the cache had of it counts once."""
    client = Client(server.address, store.tenant("cached", adapters=["sql"]))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    told = 0
    for params in ({}, {}, {"n": 3}, {"best_of": 3}, {"n": 2, "best_of": 4, "prompt": [SENTENCE, SENTENCE + " Yes."]}):
        status, _, answer = client.ask("sql", temperature=1, **params)
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert status == 200 and cached <= usage["prompt_tokens"] and (cached > 0 or told == 0), (params, usage)
        told += cached
    soon(lambda: [json.loads(line)["cached_tokens"] for line in store("usage", "cached", "--json").splitlines()] == [told], f"{told} are in the store")


def test_fair_share(store, serve):
    """One tenant's forty do not stand before another's one: it is among the first that begin when places fall free."""
    own = Store(store.url + "-share")
    greedy, modest = (own.tenant(name, adapters=["sql"]) for name in ("greedy", "modest"))
    server = serve("--store", own.url, "--max-batch", 8)

    def ask(key, max_tokens):
        assert Client(server.address, key).ask("sql", max_tokens=max_tokens, ignore_eos=True)[0] == 200

    with ThreadPoolExecutor(41) as pool:
        worker = server.children()[0]
        os.kill(worker, signal.SIGSTOP)         # nobody ends before all wait
        asked = [pool.submit(ask, greedy, 12) for _ in range(40)]
        wait_for(lambda: server.metric("punica_requests_queued") == 32, "they wait")
        asked.append(pool.submit(ask, modest, 2))
        wait_for(lambda: server.metric("punica_requests_queued") == 33, "it waits")
        os.kill(worker, signal.SIGCONT)
        for one in asked:
            one.result()
    output = [int(n) for n in re.findall(r" 200 .* output (\d+) ", server.log())]
    assert len(output) == 41 and output.index(2) <= 16          # behind the 8 that ran, and at most those that began with it
    assert server.stop() == 0


def test_priority(store, serve):
    """vLLM's field: within a tenant lower is earlier, and another tenant's request is not behind it."""
    own = Store(store.url + "-priority")
    clients = [own.tenant(name, adapters=["sql"]) for name in ("first", "second")]
    server = serve("--store", own.url, "--max-batch", 1)
    first, second = (Client(server.address, key) for key in clients)
    tokens = {"late": 20, "usual": 21, "early": 22, "next": 23, "other": 24}         # which it is known by in the log

    def ask(client, name, **params):
        assert client.ask("sql", max_tokens=tokens[name], ignore_eos=True, **params)[0] == 200

    with first.stream("sql", max_tokens=600) as read, ThreadPoolExecutor(6) as pool:
        asked, worker = [], server.children()[0]
        os.kill(worker, signal.SIGSTOP)         # the stream must not end before all wait
        for i, (name, priority) in enumerate((("late", 7), ("usual", None), ("early", -7), ("next", 0))):
            asked.append(pool.submit(ask, first, name, **({} if priority is None else {"priority": priority})))
            wait_for(lambda: server.metric("punica_requests_queued") == i + 1, "it waits")
        asked.append(pool.submit(ask, second, "other"))
        wait_for(lambda: server.metric("punica_requests_queued") == 5, "it waits")
        os.kill(worker, signal.SIGCONT)
        read()
        for one in asked:
            one.result()
    output = [int(n) for n in re.findall(r" 200 .* output (\d+) ", server.log())]
    done = [name for n in output for name in tokens if tokens[name] == n]
    assert [name for name in done if name != "other"] == ["early", "usual", "next", "late"] and done.index("other") < 2
    assert first.ask("sql", priority="high")[0] == 400
    assert server.stop() == 0


def test_connections_are_shared(store, serve):
    """A tenant with more calls than there may be connections does not keep others from coming in."""
    own = Store(store.url + "-connections")
    greedy, modest = own.tenant("greedy", adapters=["sql"]), own.tenant("modest", adapters=["sql"])
    server = serve("--store", own.url, "--max-connections", 40)
    answers, crowd = [], Client(server.address, greedy)

    def ask(_):
        try:
            answers.append(crowd.ask("sql", max_tokens=300, ignore_eos=True))
        except OSError:
            answers.append((0, {}, {}))         # one that was refused, and stayed, has made room for another

    with ThreadPoolExecutor(60) as pool:
        worker = server.children()[0]
        os.kill(worker, signal.SIGSTOP)         # nobody ends, and makes room, before all have asked
        asked = [pool.submit(ask, i) for i in range(60)]
        wait_for(lambda: len(answers) >= 28, "some are refused")
        os.kill(worker, signal.SIGCONT)
        assert Client(server.address, modest).ask("sql", max_tokens=2, ignore_eos=True)[0] == 200
        for one in asked:
            one.result()
    refused = [a for a in answers if a[0] == 429]
    assert 25 <= len([a for a in answers if a[0] == 200]) <= 32 and refused
    assert all(a[1]["Retry-After"] == "1" and a[2]["error"]["code"] == "too_many_calls" for a in refused)
    assert server.stop() == 0


def test_the_access_log_names_the_tenant(server, store):
    client = Client(server.address, store.tenant("logged", "--base", "yes"))
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    for method, path, body in (("GET", "/v1/models/demo", b""), ("GET", "/v1/usage", b""), ("POST", "/tokenize", b'{"prompt": "x"}'), ("PUT", "/v1/models", b"")):
        raw(server.address, method, path, body, client.headers)
        soon(lambda m=method, p=path: re.search(rf"{m} {p} \d+ client \S+ key logged ", server.log()), f"{method} {path} is logged")
    raw(server.address, "GET", "/v1/models")
    soon(lambda: re.search(r"GET /v1/models 401 client \S+ key - ", server.log()), "who shows no key is nobody")


def test_metrics(server, store):
    """Operators see tenants on the page of metrics; others do not."""
    assert b"tenant" not in Client(server.address).get("/metrics")[1]
    assert b"tenant" not in Client(server.address, "another key").get("/metrics")[1]
    metered = Client(server.address, store.tenant("metered", adapters=["sql"]))
    soon(lambda: metered.ask("sql")[0] == 200, "it has used some")
    other = Client(server.address, store.tenant("other", adapters=["sql"]))          # which is also what the rest is called
    soon(lambda: other.ask("sql", max_tokens=800, ignore_eos=True)[0] == 200, "it is among those that have used most")
    page = Client(server.address, ADMIN).get("/metrics")[1].decode()
    assert 'punica_tenant_output_tokens_total{tenant="removed"}' not in page
    labels = [line for line in page.splitlines() if line.startswith("punica_tenant_output_tokens_total{")]
    assert 2 <= len(labels) <= 21 and 'tenant="other"' in labels[-1]
    samples = [line.rsplit(" ", 1)[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(set(samples)) == len(samples)            # a page with one of them twice is refused as a whole
    assert 'punica_model_calls_total{model="sql"}' in page and "sql" not in Client(server.address).get("/metrics")[1].decode()


class Admin:
    """The admin API."""

    def __init__(self, address, key=ADMIN):
        self.address, self.headers = address, {"Authorization": f"Bearer {key}"}

    def __call__(self, method, path, body=None):
        status, _, answer = raw(self.address, method, f"/admin/v1/{path}", json.dumps(body) if body is not None else b"", self.headers)
        return status, json.loads(answer)


def test_admin_api(server, store):
    """A tenant's whole life over HTTP, each action in the audit log."""
    admin = Admin(server.address)
    status, made = admin("POST", "tenants", {"name": "web", "weight": 2, "tokens_per_minute": 100000})
    assert status == 201 and made["weight"] == 2 and made["base"] is False and made["adapters"] == []
    assert admin("PUT", "tenants/web/adapters/sql")[0] == admin("PUT", "tenants/web/adapters/sql")[0] == 200
    status, key = admin("POST", "tenants/web/keys", {"name": "first", "expires": 0})
    assert status == 201 and key["key"].startswith("pk-") and key["expires"] is None
    client = Client(server.address, key["key"])
    soon(lambda: client.get("/v1/models")[0] == 200, "the key is known")
    answer = client.ask("sql")[2]
    assert client.models() == ["sql"]
    wanted = [("web", "sql", answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])]

    def usage(rows):
        return [(r["tenant"], r["adapter"], r["prompt_tokens"], r["completion_tokens"]) for r in rows["usage"]]

    soon(lambda: usage(admin("GET", "usage?tenant=web")[1]) == wanted, "usage")
    assert usage(json.loads(client.get("/v1/usage")[1])) == wanted
    assert usage(json.loads(client.get("/v1/usage?tenant=usage-0&from=0")[1])) == wanted                # its own, whatever it asks for
    assert usage(json.loads(client.get(f"/v1/usage?from={int(time.time()) + 7200}")[1])) == []
    now = int(time.time())
    assert usage(json.loads(client.get(f"/v1/usage?from={now - 3600}&to={now + 1}")[1])) == wanted             # of the hour that is on, too
    assert client.get("/v1/usage?from=x")[0] == 400
    status, changed = admin("PATCH", "tenants/web", {"base": True, "in_flight": 5})
    assert status == 200 and changed["base"] and changed["in_flight"] == 5 and changed["weight"] == 2 and changed["adapters"] == ["sql"]
    assert [k["name"] for k in changed["keys"]] == ["first"] and "key" not in changed["keys"][0]
    soon(lambda: client.models() == ["demo", "sql"], "the base is allowed")
    assert admin("PATCH", "tenants/web/keys/first", {"expires": 1})[0] == 200
    soon(lambda: client.get("/v1/models")[0] == 401, "the key has expired")
    assert admin("DELETE", "tenants/web/keys/first")[0] == admin("DELETE", "tenants/web/adapters/sql")[0] == 200
    assert "web" in [t["name"] for t in admin("GET", "tenants")[1]["tenants"]]
    assert admin("DELETE", "tenants/web")[0] == 200 and admin("GET", "tenants/web")[0] == 404
    lines = admin("GET", "audit?tenant=web&last=100")[1]["audit"]
    assert [line["action"] for line in lines] == ["tenant remove", "grant remove", "key remove", "key expire", "tenant change", "key add", "grant add", "tenant add"]
    assert all(line["who"].startswith("admin:127.0.0.1") for line in lines) and key["key"] not in json.dumps(lines)


def test_admin_is_for_operators(server, store):
    key = store.tenant("curious", adapters=["sql"])
    soon(lambda: Client(server.address, key).get("/v1/models")[0] == 200, "the key is known")
    for shown in ("", key, ADMIN + "x"):
        for method, path in (("GET", "tenants"), ("GET", "usage"), ("GET", "audit"), ("DELETE", "tenants/curious"), ("POST", "tenants"), ("GET", "nothing")):
            assert Admin(server.address, shown)(method, path)[0] == 401
    assert Client(server.address, ADMIN).get("/v1/models")[0] == 401                # who is no tenant
    assert Client(server.address).get("/v1/usage")[0] == 401


def test_the_operators_key_is_changed_while_a_server_runs(store, tmp_path, serve):
    """In steps, with a SIGHUP behind each; what is no good changes nothing."""
    path, other = tmp_path / "key", "another operator's key, as long"
    path.touch(0o600)
    path.write_text(ADMIN)
    server = serve("--store", store.url, "--admin-key-file", path)

    def change(lines):
        path.write_text(lines)
        server.kill(signal.SIGHUP)

    def known():
        return [Admin(server.address, key)("GET", "tenants")[0] == 200 for key in (ADMIN, other)]
    change(ADMIN + "\n" + other)
    wait_for(lambda: known() == [True, True], "both are known")
    change("short")
    wait_for(lambda: "is shorter than 16 characters" in server.log(), "the log tells")
    assert known() == [True, True]
    change(other)
    wait_for(lambda: known() == [False, True], "the old one is not")
    assert server.stop() == 0


def test_admin_api_says_what_is_wrong(server):
    admin = Admin(server.address)
    assert admin("POST", "tenants", {"name": "said"})[0] == 201 and admin("POST", "tenants/said/keys", {"name": "k", "expires": 99})[0] == 201
    for method, path, body, status, why in (
            ("POST", "tenants", {"name": "a b"}, 400, "letters"), ("POST", "tenants", {"name": "a\0b"}, 400, "NUL"), ("POST", "tenants", {"name": "x", "tokens": 5}, 400, '"tokens"'), ("POST", "tenants", [], 400, "object"),
            ("POST", "tenants", {"name": "x", "weight": "much"}, 400, "weight"), ("POST", "tenants", {"name": "x", "in_flight": -1}, 400, "in_flight"), ("POST", "tenants", None, 400, "object"),
            ("POST", "tenants/nobody/keys", {"name": "k"}, 404, "nobody"), ("PATCH", "tenants/nobody", {}, 404, "nobody"), ("DELETE", "tenants/nobody", None, 404, "nobody"),
            ("PUT", "tenants/nobody/adapters/x", None, 404, "nobody"), ("PUT", "tenants/nobody/adapters/*x", None, 400, "*x"), ("GET", "nothing", None, 404, "nothing"),
            ("PATCH", "tenants/said", {"name": "other"}, 400, '"name"'), ("PATCH", "tenants/said/keys/k", {}, 400, '"expires"'), ("PATCH", "tenants/said/keys/k", {"expire": 5}, 400, '"expire"'),
            ("GET", "usage?from=yesterday", None, 400, "yesterday"), ("GET", "usage?to=-1", None, 400, "-1"), ("GET", "usage?form=5", None, 400, '"form"'),
            ("GET", "usage?tenant=%ff", None, 400, "UTF-8"), ("GET", "audit?last=0", None, 400, '"last"'), ("GET", "audit?last=99999999999999999999", None, 400, '"last"'),
            ("GET", "audit?tenant=%00", None, 400, "UTF-8"), ("PUT", "tenants", None, 405, "method"), ("GET", "a/b/c/d/e/f", None, 404, "nothing"), ("GET", "tenants/%ff", None, 404, "nothing"), ("GET", "", None, 404, "")):
        got = admin(method, path, body)
        assert got[0] == status and why in got[1]["error"]["message"], (method, path, got)
    _, headers, _ = raw(server.address, "PUT", "/admin/v1/tenants/said", b"{}", {"Authorization": f"Bearer {ADMIN}"})
    assert headers["Allow"] == "GET, HEAD, PATCH, DELETE, OPTIONS"
    assert admin("GET", "tenants/said")[1]["keys"][0]["expires"] == 99          # as it was
    assert admin("POST", "tenants", {"name": "twice"})[0] == 201 and admin("POST", "tenants", {"name": "twice"})[0] == 409


def test_full_disk(store, admin_key, serve):
    """The store's disk is full for a while: requests go on, and what they used is written later."""
    own = Store(store.url + "-full")
    key = own.tenant("full", adapters=["sql"])
    server = serve("--store", own.url)
    assert "tenants   1\n" in server.banner and "Bearer $KEY" in server.banner
    client = Client(server.address, key)
    assert client.ask("sql", max_tokens=3, ignore_eos=True)[0] == 200
    soon(lambda: own.usage() == {("full", "sql"): (1, 44, 3)}, "it is written")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    for _ in range(3):
        assert client.ask("sql", max_tokens=3, ignore_eos=True)[0] == 200
    wait_for(lambda: server.metric("punica_store_up") == 0, "the store fails")
    assert own.usage() == {("full", "sql"): (1, 44, 3)} and client.ask("sql", max_tokens=3, ignore_eos=True)[0] == 200
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    soon(lambda: own.usage() == {("full", "sql"): (5, 5 * 44, 15)}, "all of it is written")
    assert server.metric("punica_store_up") == 1
    assert server.stop() == 0


def test_large_bodies_leave_room_for_others(tmp_path, serve):
    """A tenant that holds all the memory it is given for bodies does not shut another out of its own."""
    store, size = Store(tmp_path / "store.db"), 700 << 10
    keys = [store.tenant(name, "--base", "yes") for name in ("greedy", "modest")]
    server = serve("--store", store.url, "--max-memory", 8 << 20)
    wait_for(lambda: server.metric("punica_live_requests") == 0, "it answers")

    def begin(key, n_sent):
        """A connection on which so much of a body was sent."""
        host, port = server.address.split(":")
        s = socket.create_connection((host, int(port)), timeout=60)
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {size}\r\n\r\n".encode())
        try:
            s.sendall(b" " * n_sent)
        except OSError:
            pass                    # it was refused, which is to be read
        return s

    held = [begin(keys[0], size - 1) for _ in range(10)]
    wait_for(lambda: len(select.select(held, [], [], 0)[0]) >= 4, "some are refused")
    time.sleep(0.5)
    refused = select.select(held, [], [], 0)[0]
    assert len(refused) < 10 and all(b" 503 " in s.recv(100) for s in refused)
    with begin(keys[1], size - 2) as s:
        s.sendall(b"[]")
        assert s.recv(100).startswith(b"HTTP/1.1 400"), "the body was taken, and is none"
    for s in held:
        s.close()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    folder = f"/tmp/punica-pg-{os.getpid()}"

    def control(what):
        return subprocess.run([ROOT / "tests/postgres.sh", what, folder], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    control.url = control("start")
    yield control
    control("remove")


def test_postgres_goes_away(postgres, tmp_path):
    """Two frontends on one PostgreSQL: they share limits. Under load it is stopped and started again, a worker and the scheduler are
    killed: usage is what the clients count, to the token."""
    store = Store(postgres.url)
    key, limited = store.tenant("load", adapters=["*"]), store.tenant("limited", "--requests-per-minute", 6, adapters=["sql"])
    cluster = Cluster(tmp_path)
    try:
        scheduler, runner = cluster.scheduler(), cluster.runner()
        fronts = [cluster.frontend("--store", postgres.url) for _ in range(2)]
        cluster.wait_gpus(1)
        clients = [Client(f.http, key) for f in fronts]
        postgres("stop")
        status, told = clients[0].get("/v1/usage")
        assert status == 503 and b"does not answer" in told and b"/tmp" not in told             # where it is, is not for tenants
        postgres("start")
        wait_for(lambda: clients[0].get("/v1/usage")[0] == 200, "it is back")
        for _ in range(6):
            assert Client(fronts[0].http, limited).ask("sql", max_tokens=1)[0] == 200
        soon(lambda: Client(fronts[1].http, limited).ask("sql", max_tokens=1)[0] == 429, "the other frontend knows of it")
        stop, counts, lock = threading.Event(), [0, 0, 0], threading.Lock()

        def work(i):
            while not stop.is_set():
                status, _, answer = clients[i % 2].ask("sql", max_tokens=20)
                assert status == 200, answer
                with lock:
                    for at, n in enumerate((1, answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])):
                        counts[at] += n

        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(work, i) for i in range(4)]
            for hurt in (lambda: os.kill(runner.children()[0], signal.SIGKILL), scheduler.kill):
                postgres("stop")
                hurt()
                wait_for(lambda: all(metric(f"http://{f.http}", "punica_store_up") == 0 for f in fronts), "it is missed")
                if scheduler.popen.poll() is not None:
                    scheduler = cluster.scheduler()
                postgres("start")
                wait_for(lambda: all(metric(f"http://{f.http}", "punica_store_up") == 1 for f in fronts), "it is back")
                time.sleep(0.3)
            postgres("freeze")          # it is there, and says nothing
            wait_for(lambda: all(metric(f"http://{f.http}", "punica_store_up") == 0 for f in fronts), "it is missed", 40)
            before = counts[0]
            wait_for(lambda: counts[0] > before + 4, "requests go on")
            postgres("thaw")
            wait_for(lambda: all(metric(f"http://{f.http}", "punica_store_up") == 1 for f in fronts), "it is back", 40)
            stop.set()
            for w in workers:
                w.result()
        soon(lambda: store.usage("load").get(("load", "sql")) == tuple(counts), f"usage is {counts}")
        new = Client(fronts[0].http, store.tenant("late", adapters=["sql"]))
        soon(lambda: new.ask("sql")[0] == 200, "a new tenant is known")
    finally:
        cluster.close()


def test_listening_elsewhere(punica, tmp_path, serve):
    """Without keys it is open on this host only."""
    for where in (["--host", "0.0.0.0"], ["--listen", "[::]:0"], ["--listen", "192.0.2.1:80"]):
        said = punica.refuses("serve", *where)
        assert "nobody needs a key" in said and "--open" in said and "--store" in said and "--api-key" in said
    assert "--store" in punica.refuses("serve", "--store", tmp_path / "no" / "such.db", "--host", "0.0.0.0", "--port", "0")
    assert "of its own" in punica.refuses("serve", "--store", tmp_path / "x.db", "--api-key", "a-key-of-some-length")
    assert "--admin-key-file" in punica.refuses("serve", "--admin-key-file", tmp_path / "key")
    assert "needs a name" in punica.refuses("serve", "--store", "")
    server = serve("--listen", "0.0.0.0:0", "--open")
    assert server.stop() == 0


def test_commands(punica, tmp_path):
    store = Store(tmp_path / "store.db")
    assert "which store" in punica.refuses("tenant", "list")
    assert "unknown command" in punica.refuses("tenant", "frobnicate") and "unknown command" in punica.refuses("tenant", "key", "x")
    store("add", "acme", "--weight", 3, "--base", "yes")
    store("limit", "acme", "--tokens-per-minute", 1000)
    shown = json.loads(store("show", "acme", "--json"))
    assert shown["weight"] == 3 and shown["base"] and shown["tokens_per_minute"] == 1000 and shown["keys"] == []
    key = store("key", "add", "acme", "main", "--expires", "30d").strip()
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600
    assert key.startswith("pk-") and key not in store("show", "acme") and key.encode() not in (tmp_path / "store.db").read_bytes()
    store("grant", "acme", "sql")
    [listed] = store("key", "list", "acme").splitlines()                # its keys, and nothing else of it
    assert listed.split()[:2] == ["main", "expires"]
    listed = json.loads(store("key", "list", "acme", "--json"))
    assert listed["name"] == "main" and listed["expires"] > time.time() and set(listed) == {"name", "created", "expires"}
    assert store("usage", "acme") == ""
    store("ungrant", "acme", "sql")
    store("key", "add", "acme", "long", "--expires", 31536000)         # a year, in seconds
    store("key", "revoke", "acme", "long")
    lines = [json.loads(line) for line in store("audit", "--json").splitlines()]
    assert [line["action"] for line in lines] == ["key remove", "key add", "grant remove", "grant add", "key add", "tenant change", "tenant add"] and lines[0]["who"].startswith("cli:")
    for bad, why in ((["add", "acme"], "already"), (["add", "a b"], "letters"), (["add", "x", "--base", "maybe"], "--base"), (["limit", "acme", "--requests-per-minute", "0.5"], "whole number"),
                     (["key", "add", "acme", "k", "--expires", "soon"], '"soon"'), (["usage", "--from", "yesterday"], '"yesterday"'),
                     (["grant", "nobody", "x"], "no tenant"), (["show", "nobody"], "no tenant"), (["key", "list", "nobody"], "no tenant"),
                     (["usage", "nobody"], "no tenant"), (["audit", "nobody"], "no tenant"), (["ungrant", "acme", "x"], "granted")):
        assert why in punica.refuses("tenant", *bad, "--store", store.url)
    store("remove", "acme")
    assert "tenant remove" in store("audit", "acme")                    # its lines are kept
    typo = tmp_path / "stroe.db"
    for command in (["tenant", "list"], ["tenant", "usage"], ["tenant", "key", "list", "acme"], ["tenant", "limit", "acme"], ["adapter", "list"]):
        assert f"there is no store {typo}" in punica.refuses(*command, "--store", typo)
    assert not typo.exists()
