"""Chat templates as users meet them: `punica template`, and a server whose templates are its model's, an adapter's, or
given by hand. What templates compute is checked against Transformers in tests/unit/test_chat.c."""
import json
import shutil

import openai
import pytest
from conftest import ROOT
from openai import OpenAI
from serving import Server, raw

DEMO = ROOT / "demo"
GOLDEN = json.loads((ROOT / "tests/golden/chat.json").read_text())
HELLO = [{"role": "user", "content": "Hello"}]
SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."


@pytest.fixture
def template(punica, tmp_path):
    """What `punica template` answers to these objects with this program."""
    def run(program, *asked, **tokens):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", **tokens}))
        (tmp_path / "given.jinja").write_text(program)
        lines = "".join(json.dumps(a) + "\n" for a in asked)
        done = punica("template", "--model", tmp_path, "--chat-template", tmp_path / "given.jinja", "--now", GOLDEN["now"], stdin=lines)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
    return run


@pytest.mark.parametrize("case", GOLDEN["programs"], ids=lambda case: case["name"])
def test_goldens(template, case):
    answers = template(case["program"], *(c["input"] for c in case["cases"]))
    assert len(answers) == len(case["cases"]) >= 20
    for c, got in zip(case["cases"], answers):
        assert set(got) == {"error"} if c["text"] is None else got == c["text"], c["input"]


def test_lines(punica):
    """Each line has its answer, whatever the others are."""
    lines = ["[1", "7", "{}", json.dumps({"messages": HELLO}), "", json.dumps({"messages": HELLO, "add_generation_prompt": "yes"}),
             json.dumps({"messages": [{"role": "user", "content": "\u2028"}], "add_generation_prompt": True}),
             json.dumps({"messages": HELLO, "continue_final_message": 5})]
    done = punica("template", "--model", DEMO / "model", stdin="\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(answers) == len(lines)
    assert [i for i, a in enumerate(answers) if isinstance(a, str)] == [3, 6]
    assert answers[3] == "<s><|im_start|>user\nHello<|im_end|>\n"
    assert answers[6] == "<s><|im_start|>user\n\u2028<|im_end|>\n<|im_start|>assistant\n"
    assert "JSON" in answers[0]["error"] and "messages" in answers[2]["error"] and "add_generation_prompt" in answers[5]["error"]


def test_variables(template):
    [got] = template("{{ bos_token }}{{ pad_token }}{{ a }}{{ b }}{{ tools|length }}{{ documents[0].t }}",
                     {"messages": HELLO, "a": 1, "chat_template_kwargs": {"b": [2.0]}, "tools": [{}, {}], "documents": [{"t": "x"}]}, pad_token="<p>")
    assert got == "<s><p>1[2.0]2x"


def test_errors_name_line_and_construct(template):
    [got] = template("a\n{{ messages[0].content.nothing.more }}", {"messages": HELLO})
    assert got == {"error": "line 2: attribute 'more': 'str' has no attribute 'nothing'"}
    [got] = template("{{ raise_exception('ä' * 500) }}", {"messages": HELLO})       # which is cut in the middle of a character
    assert got["error"].startswith("ä" * 150)
    [got] = template("{{ " + "ä" * 200 + ".x }}", {"messages": HELLO})
    assert "is undefined" in got["error"]
    [got] = template("a\n\n{{ raise_exception('not ' ~ messages[0].role) }}", {"messages": HELLO})
    assert got == {"error": "not user (raised by the chat template in line 3)"}


def test_wrong_usage(punica, tmp_path):
    (tmp_path / "bad.jinja").write_text("a\n{% if %}")
    assert "--model" in punica.refuses("template")
    assert "missing.jinja" in punica.refuses("template", "--model", tmp_path, "--chat-template", tmp_path / "missing.jinja")
    assert "line 2" in punica.refuses("template", "--model", tmp_path, "--chat-template", tmp_path / "bad.jinja")
    assert "line 2" in punica.refuses("serve", "--model", DEMO / "model", "--chat-template", tmp_path / "bad.jinja")
    assert "no chat template" in punica("template", "--model", tmp_path, stdin=json.dumps({"messages": HELLO})).stdout
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert "tokenizer_config.json" in punica.refuses("template", "--model", tmp_path)


# A server with adapters of which one brings a template of its own.

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("served")
    shutil.copytree(DEMO / "model", path / "model")
    for name in ("sql", "total"):
        shutil.copytree(DEMO / "adapters" / name, path / "adapters" / name)
    (path / "adapters/sql/chat_template.jinja").write_text("{{ bos_token }}{{ messages[-1].content }}")
    return path


@pytest.fixture(scope="module")
def server(folder):
    server = Server("--model", folder / "model", "--adapters", folder / "adapters")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def chat(client, model, messages, **params):
    return client.chat.completions.create(model=model, messages=messages, max_tokens=60, temperature=0, extra_body=params)


def complete(client, model, prompt):
    return client.completions.create(model=model, prompt=prompt, max_tokens=60, temperature=0)


def same(told, completed):
    return (told.choices[0].message.content, told.usage.prompt_tokens) == (completed.choices[0].text, completed.usage.prompt_tokens)


CHATML = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n" % SENTENCE


def test_adapter_has_its_own(client, folder):
    """The base and other adapters do not; when it goes, the base's is used; when it comes again, it counts again."""
    asked = [{"role": "user", "content": SENTENCE}]
    assert same(chat(client, "sql", asked), complete(client, "sql", SENTENCE))
    assert same(chat(client, "total", asked), complete(client, "total", CHATML))
    assert same(chat(client, "model", asked), complete(client, "model", CHATML))
    own = folder / "adapters/sql/chat_template.jinja"
    kept = own.read_text()
    own.unlink()
    assert same(chat(client, "sql", asked), complete(client, "sql", CHATML))
    own.write_text("{{ raise_exception('sql takes no ' ~ messages[-1].role ~ ' today') }}")
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, "sql", asked)
    assert error.value.body["message"].startswith("sql takes no user today") and error.value.body["param"] == "messages"
    assert same(chat(client, "total", asked), complete(client, "total", CHATML))
    own.write_text(kept)
    assert same(chat(client, "sql", asked), complete(client, "sql", SENTENCE))


def test_continued(client):
    asked = [{"role": "user", "content": SENTENCE}, {"role": "assistant", "content": "3 x"}]
    assert same(chat(client, "total", asked, continue_final_message=True), complete(client, "total", CHATML + "3 x"))
    with pytest.raises(openai.BadRequestError):
        chat(client, "total", asked, continue_final_message=True, add_generation_prompt=True)


def test_roles_are_the_templates_business(client, server):
    """The demo's template writes any role and any field; other fields than text it cannot write."""
    text = "<|im_start|>critic\nBad.<|im_end|>\n<|im_start|>assistant\n"
    assert same(chat(client, "model", [{"role": "critic", "content": "Bad.", "name": "Eva"}]), complete(client, "model", text))
    for message in ({"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "tool_call_id": "x"}):
        status, _, body = raw(server.address, "POST", "/v1/chat/completions", json.dumps({"model": "model", "messages": [message]}))
        assert status == 400 and json.loads(body)["error"]["message"].startswith("line 1: operator +: ")


@pytest.mark.parametrize("field, value", [("tools", [{"type": "function"}]), ("chat_template", "x"), ("chat_template_kwargs", 5),
                                          ("add_generation_prompt", "yes"), ("continue_final_message", 1)])
def test_refused_fields(client, field, value):
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, "model", HELLO, **{field: value})
    assert error.value.body["param"] == field


def test_given_template(folder, tmp_path):
    """--chat-template is for all: the model's and the adapters' own do not count."""
    (tmp_path / "given.jinja").write_text("{{ bos_token }}{{ '!' if loud }}{{ reasoning_effort }}{{ messages[0].content }} {% if messages|length > 1 %}"
                                          "{{ raise_exception('one at a time') }}{% endif %}")
    server = Server("--model", folder / "model", "--adapters", folder / "adapters", "--chat-template", tmp_path / "given.jinja")
    try:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
        for model in ("model", "sql"):
            assert same(chat(client, model, HELLO), complete(client, model, "Hello "))
            assert same(chat(client, model, HELLO, chat_template_kwargs={"loud": True}), complete(client, model, "!Hello "))
            assert same(chat(client, model, HELLO, reasoning_effort="low"), complete(client, model, "lowHello "))
            assert same(chat(client, model, HELLO, reasoning_effort="low", chat_template_kwargs={"loud": True, "reasoning_effort": "high"}), complete(client, model, "!highHello "))
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, "sql", HELLO * 2)
        assert "one at a time" in error.value.body["message"]
        assert server.stop() == 0
    finally:
        server.end()


def test_model_with_a_bad_template(folder, tmp_path):
    """Completions are served all the same; a chat is told what is wrong."""
    shutil.copytree(DEMO / "model", tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text("{{ bos_token }}\n{% for m in messages %}{{ m.content }}")
    server = Server("--model", tmp_path / "model", "--log-level", "info")
    try:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
        assert complete(client, "model", "Hello").choices[0].text
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, "model", HELLO)
        assert "cannot be used: line 2" in error.value.body["message"]
        assert "chat completions are refused" in server.log()
        assert server.stop() == 0
    finally:
        server.end()
