"""An adapter is its content: what a request began with is what it ends with, and who comes after a replacement gets the
new one. The adapter "mine" is a copy of the demo's "sql" at first, and then, by rename, of "french"."""
import os
import shutil
import signal

import openai
import pytest
from conftest import ROOT
from openai import OpenAI
from serving import Server, hold_stream

ADAPTERS = ROOT / "demo" / "adapters"
SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
LONG = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}


def put(folder, source):
    """Make folder a copy of the source at once, whatever it was before."""
    new, old = folder.with_name("new"), folder.with_name("old")
    shutil.copytree(source, new)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@pytest.fixture
def mine(tmp_path):
    """(server, client, folder) with the adapters sql, french, and mine, which is sql."""
    folder = tmp_path / "adapters"
    for name, source in (("sql", "sql"), ("french", "french"), ("mine", "sql")):
        put(folder / name, ADAPTERS / source)
    server = Server("--model", ROOT / "demo" / "model", "--adapters", folder, "--name", "demo", "--threads", "1")
    yield server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60), folder / "mine"
    server.end()


def ask(client, model, **params):
    return client.completions.create(model=model, prompt=SENTENCE, temperature=0, **{"max_tokens": 60, **params})


def text(client, model, **params):
    return ask(client, model, **params).choices[0].text


def rest(stream):
    return "".join(chunk.choices[0].text for chunk in stream)


def test_new_requests_use_the_new_version_and_running_ones_their_own(mine):
    server, client, folder = mine
    sql, french, long = text(client, "sql"), text(client, "french"), text(client, "sql", **LONG)
    assert text(client, "mine") == sql != french
    stream = ask(client, "mine", stream=True, **LONG)
    begun = next(stream).choices[0].text
    put(folder, ADAPTERS / "french")
    assert text(client, "mine") == french
    assert begun + rest(stream) == long
    put(folder, ADAPTERS / "sql")
    assert text(client, "mine") == sql
    assert server.stop() == 0


def test_a_removed_folder_made_anew_is_a_new_version(mine):
    server, client, folder = mine
    assert text(client, "mine") == text(client, "sql")
    shutil.rmtree(folder)
    with pytest.raises(openai.NotFoundError):
        text(client, "mine")
    put(folder, ADAPTERS / "french")
    assert text(client, "mine") == text(client, "french")
    assert server.stop() == 0


def test_weights_changed_in_place_are_a_new_version(mine):
    server, client, folder = mine
    assert text(client, "mine") == text(client, "sql")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_bytes((ADAPTERS / "french" / name).read_bytes())
    assert text(client, "mine") == text(client, "french")
    assert server.stop() == 0


def test_a_stream_whose_weights_are_gone_ends_and_says_so(mine):
    """Its worker dies after the replacement: nobody has the weights it was begun with any more."""
    server, client, folder = mine
    stream, first, worker = hold_stream(server, lambda: ask(client, "mine", stream=True, **LONG))
    put(folder, ADAPTERS / "french")
    os.kill(worker, signal.SIGKILL)
    got = first.choices[0].text
    with pytest.raises(openai.APIError, match="was replaced since the request began"):
        for chunk in stream:
            got += chunk.choices[0].text
    assert text(client, "sql", **LONG).startswith(got)          # until then all of it was of the old weights
    assert text(client, "mine") == text(client, "french")


def test_a_stream_goes_on_with_its_weights_after_its_worker_died(mine):
    server, client, folder = mine
    long = text(client, "sql", **LONG)
    stream = ask(client, "mine", stream=True, **LONG)
    begun = next(stream).choices[0].text
    put(folder, ADAPTERS / "french")
    assert text(client, "mine") == text(client, "french")
    put(folder, ADAPTERS / "sql")       # another inode, the same content: the same version
    os.kill(server.children()[0], signal.SIGKILL)
    assert begun + rest(stream) == long


def test_files_cut_off_while_in_use_hurt_nobody_else(mine):
    """An adapter's are read, not mapped: only who asks for it next is told."""
    server, client, folder = mine
    long = text(client, "sql", **LONG)
    stream = ask(client, "mine", stream=True, **LONG)
    begun = next(stream).choices[0].text
    os.truncate(folder / "adapter_model.safetensors", 1000)
    with pytest.raises(openai.BadRequestError, match="mine"):
        text(client, "mine")
    assert begun + rest(stream) == long
    assert len(server.children()) == 1 and "ended" not in server.log()
    assert server.stop() == 0


def test_a_model_cut_off_while_in_use_is_named(tmp_path):
    shutil.copytree(ROOT / "demo" / "model", tmp_path / "model")
    server = Server("--model", tmp_path / "model", "--threads", "1")
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    try:
        whole = (tmp_path / "model/model.safetensors").read_bytes()
        answer = text(client, "model")
        os.truncate(tmp_path / "model/model.safetensors", 1000)
        stream = ask(client, "model", stream=True)
        server.wait_log(r"model\.safetensors was cut off while it was in use")
        (tmp_path / "model/model.safetensors").write_bytes(whole)
        assert rest(stream) == answer           # the worker is back, with the file
    finally:
        server.end()
