"""Names of a disk cache: added, replaced, rolled back and removed while a server serves them. The adapter "mine" is the demo's "sql" at
first, and then "french"; a request is served with the version it began with, whatever becomes of the name and of workers."""
import json
import os
import signal

import openai
import pytest
from openai import OpenAI

from conftest import ROOT
from serving import Server

DEMO = ROOT / "demo"
SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."
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


def ask(client, model, **how):
    return client.completions.create(model=model, prompt=SENTENCE, temperature=0, **{"max_tokens": 60, **how})


def text(client, model, **how):
    return ask(client, model, **how).choices[0].text


def rest(stream):
    return "".join(chunk.choices[0].text for chunk in stream)


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


@pytest.mark.parametrize("change", [("remove", "mine"), ("add", "mine", DEMO / "adapters/french", "--model", DEMO / "model", "--replace")],
                         ids=["removed", "replaced"])
def test_a_stream_finds_its_weights_whatever_becomes_of_the_name_and_its_worker(served, change):
    server, client, names = served
    names.add("mine", "sql")
    long = text(client, "sql", **LONG)
    stream = ask(client, "mine", stream=True, **LONG)
    begun = next(stream).choices[0].text
    names(*change)
    os.kill(server.children()[0], signal.SIGKILL)
    assert begun + rest(stream) == long


def test_what_a_stream_began_with_stays_on_disk_until_it_has_ended(served):
    server, client, names = served
    first = names.add("mine", "sql")
    long = text(client, "sql", **LONG)
    stream = ask(client, "mine", stream=True, **LONG)
    begun = next(stream).choices[0].text
    names("remove", "mine")
    room = sum(f.stat().st_size for f in (DEMO / "adapters/french").iterdir()) + 1000
    other = ("fetch", DEMO / "adapters/french", "--model", DEMO / "model", "--cache-bytes", room)
    assert "is full" in names.refuses(*other)
    os.kill(server.children()[0], signal.SIGKILL)
    assert begun + rest(stream) == long
    names(*other)
    assert not (names.cache / first["id"]).exists()
