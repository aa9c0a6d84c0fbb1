"""Functions that a model may call, through the openai client. The demo model was not taught to call any: what it writes is
given by a grammar, so that the way from the request's tools to the answer's tool_calls is what is tested."""
import json

import jsonschema
import openai
import pytest
from openai import OpenAI

from serving import Server

WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "maxLength": 15}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["place", "days"], "additionalProperties": False}}}
TREE = {"type": "function", "function": {"name": "plant", "parameters": {
    "type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"],
    "$defs": {"tree": {"type": "object", "properties": {"height": {"type": "integer", "maximum": 50}, "child": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                       "required": ["height", "child"]}}}}}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %} {{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}"
MARKS = {"hermes": "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}", "mistral": "{% if tools %}[TOOL_CALLS]{% endif %}",
         "llama": '{% if tools %}{"name": ..., "parameters": ...}{% endif %}', "pythonic": "{% if tools %}[func_name1(params_name1=params_value1)]{% endif %}"}
WRITTEN = {"hermes": 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"place": "Röm", "days": 2}}\n</tool_call>\n<tool_call>\n{"name": "plant", "arguments": {}}\n</tool_call>',
           "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"place": "Röm", "days": 2}}, {"name": "plant", "arguments": {}}]',
           "llama": '{"name": "weather", "parameters": {"place": "Röm", "days": 2}}; {"name": "plant", "parameters": {}}',
           "pythonic": '[weather(place="Röm", days=2), plant()]'}


def serve(tmp_path, template):
    (tmp_path / "template.jinja").write_text(template)
    return Server("--chat-template", str(tmp_path / "template.jinja"))


@pytest.fixture(scope="module", params=list(MARKS))
def called(request, tmp_path_factory):
    """(client, what the model is made to write) for a model of each format."""
    server = serve(tmp_path_factory.mktemp(request.param), MARKS[request.param] + TEMPLATE)
    yield OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60), WRITTEN[request.param]
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    server = serve(tmp_path_factory.mktemp("plain"), TEMPLATE)
    yield OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    assert server.stop() == 0


def chat(client, **how):
    return client.chat.completions.create(**{"model": "demo", "messages": [{"role": "user", "content": "Weather?"}], "tools": [WEATHER, TREE], "max_tokens": 200,
                                             "temperature": 1, "seed": 2, **how})


def test_calls_are_found(called):
    client, written = called
    choice = chat(client, extra_body={"guided_choice": [written]}).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content or "") == ("Let me see." if "Let me" in written else "")
    calls = choice.message.tool_calls
    assert [c.function.name for c in calls] == ["weather", "plant"] and json.loads(calls[0].function.arguments) == {"place": "Röm", "days": 2}
    assert calls[0].id != calls[1].id and all(c.type == "function" for c in calls)


def test_streams_tell_the_same(called):
    client, written = called
    text, calls, why = "", {}, None
    for chunk in chat(client, stream=True, extra_body={"guided_choice": [written]}):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for c in delta.tool_calls or []:
            calls[c.index] = (c.id, c.function.name, calls.get(c.index, ("", "", ""))[2] + c.function.arguments)
        why = chunk.choices[0].finish_reason or why
    assert why == "tool_calls" and text.strip() == ("Let me see." if "Let me" in written else "")
    assert [calls[i][1] for i in range(2)] == ["weather", "plant"] and json.loads(calls[0][2]) == {"place": "Röm", "days": 2}


def test_what_is_no_call_is_text(called):
    client, _ = called
    for text in ("No call.", '{"x": 1}', "[1, 2]", "<tool_call>nothing"):
        choice = chat(client, extra_body={"guided_choice": [text]}).choices[0]
        assert choice.message.content == text and not choice.message.tool_calls and choice.finish_reason == "stop"
        stream = chat(client, stream=True, extra_body={"guided_choice": [text]})
        assert "".join(c.choices[0].delta.content or "" for c in stream) == text


def test_a_round_of_calls(called):
    """What came back can be sent again, with the result."""
    client, written = called
    message = chat(client, extra_body={"guided_choice": [written]}).choices[0].message
    again = [{"role": "user", "content": "Weather?"}, message.to_dict(), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    assert chat(client, messages=again, tool_choice="none").choices[0].message.content is not None


def test_a_call_is_demanded(client):
    for s in range(4):
        choice = chat(client, seed=s, tool_choice="required", parallel_tool_calls=False).choices[0]
        assert choice.finish_reason in ("tool_calls", "length")
        if choice.finish_reason == "tool_calls":
            (call,) = choice.message.tool_calls
            schema = {"weather": WEATHER, "plant": TREE}[call.function.name]["function"]["parameters"]
            jsonschema.validate(json.loads(call.function.arguments), schema)


def test_a_call_by_name(client):
    choice = chat(client, tool_choice={"type": "function", "function": {"name": "weather"}}, temperature=2).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name == "weather" and choice.finish_reason == "stop" and choice.message.content is None
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])


@pytest.mark.parametrize("how, field", [
    ({}, "tools"), ({"tools": [{"type": "function"}]}, "tools"), ({"tool_choice": "some"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"), ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required", "parallel_tool_calls": "yes"}, "parallel_tool_calls"), ({"extra_body": {"functions": [{"name": "f"}]}, "tools": []}, "functions"),
    ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array", "uniqueItems": True}}}]}, "tools"),
    ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "tools"),
])
def test_errors_name_the_field(client, how, field):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, **how)
    assert e.value.body["param"] == field, e.value.message
