"""Names of a disk cache: added, replaced, rolled back and removed while a server serves them. The adapter "mine" is the demo's "sql" at
first, and then "french"; a request is served with the version it began with, whatever becomes of the name and of workers."""
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import requests
from conftest import ROOT
from openai import OpenAI
from serving import Server, hold_stream
from test_tenants import ADMIN, Store
from test_versions import SENTENCE, ask, rest, text
from web_site import Site

DEMO = ROOT / "demo"
LONG = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}


class Names:
    """`punica adapter` on one cache."""

    def __init__(self, punica, cache):
        self.punica, self.cache = punica, cache

    def __call__(self, command, *args):
        done = self.punica("adapter", command, *args, "--cache", self.cache)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add(self, name, source, *options):
        return json.loads(self("add", name, DEMO / "adapters" / source, "--model", DEMO / "model", "--json", *options))

    def show(self, name):
        return json.loads(self("show", name, "--json"))

    def refuses(self, *args):
        return self.punica.refuses("adapter", *args, "--cache", self.cache)


@pytest.fixture
def names(punica, tmp_path):
    return Names(punica, tmp_path / "cache")


@pytest.fixture
def served(names):
    """(server, client, names) with the demo's adapters and the cache's names."""
    server = Server("--model", DEMO / "model", "--adapters", DEMO / "adapters", "--cache", names.cache, "--name", "demo", "--threads", "1")
    yield server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60), names
    server.end()


def test_commands(names):
    first = names.add("mine", "sql")
    assert "already" in names.refuses("add", "mine", DEMO / "adapters/french", "--model", DEMO / "model")
    second = names.add("mine", "french", "--replace")
    shown = names.show("mine")
    assert shown["current"] == 2 and [v["id"] for v in shown["versions"]] == [first["id"], second["id"]]
    assert shown["versions"][0]["source"] == f"file:{DEMO}/adapters/sql" and shown["versions"][0]["bytes"] == first["bytes"]
    assert json.loads(names("rollback", "mine", "--json"))["current"] == 1
    assert "no version before" in names.refuses("rollback", "mine")
    assert "not the number of a version" in names.refuses("rollback", "mine", "x")
    assert json.loads(names("rollback", "mine", "2", "--json"))["current"] == 2
    assert names("show", "mine").startswith("*   2  ") and names("list").startswith("mine ")
    names("remove", "mine")
    assert names("list") == "" and 'no adapter "mine"' in names.refuses("remove", "mine")
    assert "slashes" in names.refuses("add", "a/../mine", DEMO / "adapters/sql", "--model", DEMO / "model")
    assert "which cache" in names.punica.refuses("adapter", "list")


def test_a_name_lives_while_it_is_served(served):
    server, client, names = served
    sql, french = text(client, "sql"), text(client, "french")
    with pytest.raises(openai.NotFoundError):
        text(client, "mine")
    names.add("mine", "sql")
    assert text(client, "mine") == sql and "mine" in [m.id for m in client.models.list()]
    names.add("mine", "french", "--replace")
    assert text(client, "mine") == french
    names("rollback", "mine")
    assert text(client, "mine") == sql
    names("remove", "mine")
    with pytest.raises(openai.NotFoundError):
        text(client, "mine")
    assert "mine" not in [m.id for m in client.models.list()]
    assert server.stop() == 0


def test_a_stream_finds_its_weights_when_its_name_was_replaced_and_its_worker_died(served):
    server, client, names = served
    names.add("mine", "sql")
    long = text(client, "sql", **LONG)
    stream, first, worker = hold_stream(server, lambda: ask(client, "mine", stream=True, **LONG))
    names.add("mine", "french", "--replace")
    os.kill(worker, signal.SIGKILL)
    assert first.choices[0].text + rest(stream) == long


def test_what_a_stream_began_with_stays_on_disk_until_it_has_ended(served):
    """Its name is removed, its room is wanted, and its worker dies."""
    server, client, names = served
    first = names.add("mine", "sql")
    long = text(client, "sql", **LONG)
    stream, begun, worker = hold_stream(server, lambda: ask(client, "mine", stream=True, **LONG))
    names("remove", "mine")
    room = sum(f.stat().st_size for f in (DEMO / "adapters/french").iterdir()) + 1000
    other = ("fetch", DEMO / "adapters/french", "--model", DEMO / "model", "--cache-bytes", room)
    assert "is full" in names.refuses(*other)
    os.kill(worker, signal.SIGKILL)
    assert begun.choices[0].text + rest(stream) == long
    names(*other)
    assert not (names.cache / first["id"]).exists()


class Http:
    """http.get(path), http.put(path, json=...) and so on, at one server."""

    def __init__(self, url):
        self.url = url

    def __getattr__(self, method):
        return lambda path, **how: requests.request(method, self.url + path, timeout=60, **how)


@pytest.fixture
def updates(punica, tmp_path):
    """(server, client, http) of a server whose adapters may be changed by HTTP, from the demo's folder."""
    server = Server("--model", DEMO / "model", "--cache", tmp_path / "cache", "--adapter-updates", "--adapter-files", DEMO / "adapters",
                    "--allow-network", "127.0.0.1", "--name", "demo", "--threads", "1", "--adapter", f"given={DEMO}/adapters/json")
    yield server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60), Http(server.url)
    server.end()


def load(http, name, path, **more):
    return http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path), **more})


def test_adapters_by_http(updates):
    server, client, http = updates
    assert http.get("/v1/adapters").json() == {"object": "list", "data": []}
    got = load(http, "mine", DEMO / "adapters/sql")
    assert got.status_code == 200 and got.json()["current"] == 1 and got.json()["on_disk"], got.text
    sql = text(client, "mine")
    again = load(http, "mine", DEMO / "adapters/french")
    assert again.status_code == 400 and again.json()["error"]["code"] == "already_loaded"
    assert load(http, "mine", DEMO / "adapters/french", load_inplace=True).json()["current"] == 2
    french = text(client, "mine")
    assert french != sql
    assert http.put("/v1/adapters/mine", json={"version": 1}).json()["current"] == 1
    assert text(client, "mine") == sql
    put = http.put("/v1/adapters/other%20one", json={"source": f"file:{DEMO}/adapters/french"})
    assert put.status_code == 200 and text(client, "other one") == french
    assert [a["name"] for a in http.get("/v1/adapters").json()["data"]] == ["mine", "other one"]
    shown = http.get("/v1/adapters/mine").json()
    assert [v["version"] for v in shown["versions"]] == [1, 2] and shown["versions"][0]["by"].startswith("127.0.0.1")
    assert http.post("/v1/unload_lora_adapter", json={"lora_name": "mine"}).status_code == 200
    with pytest.raises(openai.NotFoundError):
        text(client, "mine")
    assert http.get("/v1/adapters/mine").status_code == 404
    assert http.delete("/v1/adapters/other%20one").json() == {"name": "other one", "removed": True}
    assert http.delete("/v1/adapters/other%20one").status_code == 404
    assert server.stop() == 0


def test_bad_changes_by_http(updates):
    server, _, http = updates
    sql = str(DEMO / "adapters/sql")
    for name, path, says in (("demo", sql, "does not come from here"), ("given", sql, "does not come from here"), ("../x", sql, "name"),
                             ("x", "/etc", "not in the folder"), ("x", str(DEMO / "adapters/../model"), "not in the folder"), ("x", "nothing", "must begin with"),
                             ("x", "http://127.0.0.2:9/x.zip", "not a public address"), ("x", "http://[::1]:9/x.zip", "not a public address"),
                             ("x", "", "lora_path"), ("", sql, "lora_name"), ("x", sql + "#sha256=" + "0" * 64, "asked for")):
        got = load(http, name, path)
        assert got.status_code == 400 and says in got.json()["error"]["message"], (name, path, got.text)
    for method, path, body, status in (("POST", "/v1/load_lora_adapter", "[]", 400), ("POST", "/v1/load_lora_adapter", "{", 400),
                                       ("POST", "/v1/unload_lora_adapter", "{}", 400), ("PUT", "/v1/adapters/x", "{}", 400),
                                       ("PUT", "/v1/adapters/x", '{"version": 0}', 400), ("PUT", "/v1/adapters/x", '{"version": 1}', 404),
                                       ("POST", "/v1/adapters/x", "{}", 405), ("DELETE", "/v1/adapters", "", 405), ("GET", "/v1/adapters/", "", 404), ("GET", "/v1/load_lora_adapter", "", 405),
                                       ("GET", "/v1/adapters/..%2f..%2fetc", "", 404)):
        assert getattr(http, method)(path, data=body).status_code == status, (method, path, body)
    assert http.get("/v1/adapters").json()["data"] == []
    assert "model.safetensors" not in load(http, "x", DEMO / "adapters").text
    assert server.stop() == 0


def test_without_the_option_nothing_is_changed(served):
    server, _, _ = served
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        assert requests.post(server.url + path, json={"lora_name": "x", "lora_path": str(DEMO / "adapters/sql")}, timeout=60).status_code == 404
    assert requests.get(server.url + "/v1/adapters/x", timeout=60).status_code == 404


def test_a_slow_source_holds_up_nobody(updates):
    """Five of them, more than there are threads for: others are answered meanwhile, and each ends as it should."""
    server, client, http = updates
    go, waiting = threading.Event(), threading.Semaphore(0)

    def halt(handler, data):
        waiting.release()
        go.wait(30)
        handler.whole_or_range(data)
    files = {f"/{i}/{f.name}": f.read_bytes() for i in range(5) for f in (DEMO / "adapters/sql").iterdir()}
    site = Site(files, {path: halt for path in files if path.endswith("safetensors")})
    with ThreadPoolExecutor(5) as pool:
        loads = [pool.submit(load, http, f"slow{i}", f"{site.url}/{i}") for i in range(5)]
        for _ in range(4):
            assert waiting.acquire(timeout=30)
        assert text(client, "given") and http.get("/v1/adapters").json()["data"] == []
        with pytest.raises(openai.NotFoundError):
            text(client, "slow0")
        go.set()
        assert [one.result().status_code for one in loads] == [200] * 5
    assert len(http.get("/v1/adapters").json()["data"]) == 5 and text(client, "slow4")
    site.end()


def test_where_there_are_tenants_operators_change_adapters(tmp_path):
    """A tenant that may have none of its own cannot load, load over, replace, unload or look at any; and sees what it is granted. (What a
    tenant may do with its own is in test_registry.py.)"""
    store, key = Store(tmp_path / "store.db"), tmp_path / "key"
    key.write_text(ADMIN)
    key.chmod(0o600)
    ann, bob = store.tenant("ann", adapters=["mine"]), store.tenant("bob", adapters=["theirs"])
    server = Server("--model", DEMO / "model", "--cache", tmp_path / "cache", "--adapter-updates", "--adapter-files", DEMO / "adapters",
                    "--name", "demo", "--threads", "1", "--store", store.url, "--admin-key-file", key)
    operator = {"Authorization": f"Bearer {ADMIN}"}
    try:
        def each(http, headers):
            yield http.post("/v1/load_lora_adapter", json={"lora_name": "mine", "lora_path": f"{DEMO}/adapters/french", "load_inplace": True}, headers=headers)
            yield http.put("/v1/adapters/mine", json={"version": 1}, headers=headers)
            yield http.get("/v1/adapters/mine", headers=headers)
            yield http.get("/v1/adapters", headers=headers)
            yield http.post("/v1/unload_lora_adapter", json={"lora_name": "mine"}, headers=headers)
            yield http.delete("/v1/adapters/mine", headers=headers)
        http = Http(server.url)
        loaded = http.post("/v1/load_lora_adapter", json={"lora_name": "mine", "lora_path": f"{DEMO}/adapters/sql"}, headers=operator)
        assert loaded.status_code == 200, loaded.text
        assert [answer.status_code for answer in each(http, {})] == [401] * 6
        for who in ({"Authorization": f"Bearer {ann}"}, {"Authorization": f"Bearer {bob}"}):
            assert [answer.status_code for answer in each(http, who)] == [403, 404, 404, 200, 404, 404]
            assert http.get("/v1/adapters", headers=who).json()["data"] == []
        assert http.get("/v1/adapters/mine", headers=operator).json()["current"] == 1
        for who, models, status in ((ann, ["mine"], 200), (bob, [], 404)):
            shown = http.get("/v1/models", headers={"Authorization": f"Bearer {who}"}).json()["data"]
            assert [m["id"] for m in shown if m["id"] == "mine"] == models
            asked = http.post("/v1/completions", json={"model": "mine", "prompt": SENTENCE, "max_tokens": 4}, headers={"Authorization": f"Bearer {who}"})
            assert asked.status_code == status, asked.text
        assert server.stop() == 0
    finally:
        server.end()
