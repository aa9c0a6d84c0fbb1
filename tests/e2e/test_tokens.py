"""vLLM's /tokenize and /detokenize, and /version."""
import json

import pytest
from conftest import ROOT
from serving import Server, raw

SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps. ☃ <|im_end|>"
CHAT = [{"role": "user", "content": SENTENCE}]


def post(server, path, body, status=200, **headers):
    got, _, text = raw(server.address, "POST", path, json.dumps(body).encode(), headers)
    assert got == status, text
    return json.loads(text)


def test_there_and_back(server):
    got = post(server, "/tokenize", {"prompt": SENTENCE})
    assert got["count"] == len(got["tokens"]) and got["token_strs"] is None
    assert got["max_model_len"] == json.loads(raw(server.address, "GET", "/v1/models")[2])["data"][0]["max_model_len"]
    bare = post(server, "/tokenize", {"model": "sql", "prompt": SENTENCE, "add_special_tokens": False, "return_token_strs": True})
    assert got["tokens"][1:] == bare["tokens"] and len(bare["token_strs"]) == bare["count"]
    assert post(server, "/detokenize", {"tokens": bare["tokens"]}) == {"prompt": SENTENCE}
    with_bos = post(server, "/detokenize", {"model": "demo", "tokens": got["tokens"]})["prompt"]
    assert with_bos.endswith(SENTENCE) and with_bos != SENTENCE
    used = post(server, "/v1/completions", {"model": "demo", "prompt": SENTENCE, "max_tokens": 1})["usage"]["prompt_tokens"]
    assert used == got["count"]


def test_conversations(server):
    got = post(server, "/tokenize", {"messages": CHAT})
    used = post(server, "/v1/chat/completions", {"model": "demo", "messages": CHAT, "max_tokens": 1})["usage"]["prompt_tokens"]
    assert got["count"] == used
    closed = post(server, "/tokenize", {"messages": CHAT, "add_generation_prompt": False, "chat_template_kwargs": {}})
    assert closed["tokens"] == got["tokens"][:closed["count"]]
    more = post(server, "/tokenize", {"messages": CHAT, "add_special_tokens": True})
    assert more["count"] >= got["count"]


def test_any_length(server):
    assert post(server, "/tokenize", {"prompt": "", "add_special_tokens": False}) == {
        "count": 0, "max_model_len": post(server, "/tokenize", {"prompt": "x"})["max_model_len"], "tokens": [], "token_strs": None}
    assert post(server, "/detokenize", {"tokens": []}) == {"prompt": ""}
    limit = post(server, "/tokenize", {"prompt": "x"})["max_model_len"]
    ids = post(server, "/tokenize", {"prompt": SENTENCE, "add_special_tokens": False})["tokens"]
    long = post(server, "/detokenize", {"tokens": (ids * limit)[:limit + limit // 2]})["prompt"]
    assert post(server, "/tokenize", {"prompt": long})["count"] > limit


@pytest.mark.parametrize("path,body,status,says", [
    ("/tokenize", {}, 400, "prompt"), ("/tokenize", {"prompt": ["a"]}, 400, "prompt"), ("/tokenize", {"prompt": "a", "messages": CHAT}, 400, "either"),
    ("/tokenize", {"messages": []}, 400, "messages"), ("/tokenize", {"prompt": "a", "model": "nobody"}, 404, "nobody"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, 400, "add_special_tokens"), ("/tokenize", [], 400, "object"),
    ("/detokenize", {}, 400, "tokens"), ("/detokenize", {"tokens": "a"}, 400, "tokens"), ("/detokenize", {"tokens": ["a"]}, 400, "tokens"),
    ("/detokenize", {"tokens": [99999999]}, 400, "vocabulary"), ("/detokenize", {"tokens": [1.5]}, 400, "token id"),
    ("/detokenize", {"tokens": [-1]}, 400, "token id"),
])
def test_errors(server, path, body, status, says):
    assert says in post(server, path, body, status)["error"]["message"]


def test_version(server):
    status, _, text = raw(server.address, "GET", "/version")
    assert status == 200 and set(json.loads(text)) == {"version"}
    assert raw(server.address, "GET", "/tokenize")[0] == 405


def test_a_key_is_needed():
    server = Server("--model", ROOT / "demo/model", "--api-key", "abcdefgh12345678")
    try:
        post(server, "/tokenize", {"prompt": "x"}, 401)
        post(server, "/tokenize", {"prompt": "x"}, Authorization="Bearer abcdefgh12345678")
        assert raw(server.address, "GET", "/version")[0] == 200
    finally:
        server.end()
