"""Folders that hold no adapter of this base: they are not among the models, the banner lists them as failed, the log says why, and who asks for one is told."""
import json
import shutil

import pytest
from conftest import ROOT
from serving import Server, raw

GOOD = ROOT / "demo/adapters/sql"


def put(folder, config=None, weights=True):
    folder.mkdir()
    said = json.loads((GOOD / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**said, **(config or {})}))
    if weights:
        shutil.copy(GOOD / "adapter_model.safetensors", folder)


@pytest.fixture
def adapters(tmp_path):
    put(tmp_path / "good")
    put(tmp_path / "dora", {"use_dora": True})
    put(tmp_path / "empty", weights=False)
    put(tmp_path / "rank", {"r": 3})
    (tmp_path / "cut").mkdir()
    shutil.copy(GOOD / "adapter_config.json", tmp_path / "cut")
    (tmp_path / "cut/adapter_model.safetensors").write_bytes((GOOD / "adapter_model.safetensors").read_bytes()[:1000])
    return tmp_path


@pytest.fixture
def server(adapters):
    server = Server("--model", ROOT / "demo/model", "--name", "demo", "--adapters", adapters)
    yield server
    assert server.stop() == 0


def listed(server):
    return [m["id"] for m in json.loads(raw(server.address, "GET", "/v1/models")[2])["data"]]


def ask(server, name):
    status, _, text = raw(server.address, "POST", "/v1/completions", json.dumps({"model": name, "prompt": "x", "max_tokens": 2}).encode())
    return status, json.loads(text).get("error")


def test_they_are_not_listed_and_say_why(server, adapters):
    assert listed(server) == ["demo", "good"]
    assert "  adapters  good\n  failed    cut dora empty rank\n" in server.banner
    for name, why in (("dora", "use_dora"), ("empty", "adapter_model.safetensors"), ("rank", "lora_A"), ("cut", "adapter_model.safetensors")):
        for _ in range(2):
            status, error = ask(server, name)
            assert status == 400 and error["param"] == "model" and error["code"] == "invalid_adapter", error
            assert why in error["message"] and str(adapters) not in error["message"], error
        assert raw(server.address, "GET", f"/v1/models/{name}")[0] == 404
        assert server.log().count(f"adapter {name} cannot be served") == 1
    assert ask(server, "good") == (200, None) and server.metric("punica_live_requests") == 0


def test_what_appears_is_looked_at(server, adapters):
    put(adapters / "later", {"use_dora": True})
    assert ask(server, "later")[0] == 400 and "later" not in listed(server)
    shutil.copy(GOOD / "adapter_config.json", adapters / "later/adapter_config.json")
    assert ask(server, "later")[0] == 200 and "later" in listed(server)
    (adapters / "good/adapter_model.safetensors").unlink()
    assert ask(server, "good")[0] == 400 and "good" not in listed(server)
    shutil.rmtree(adapters / "empty")
    assert ask(server, "empty")[0] == 404
