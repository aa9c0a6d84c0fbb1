"""Other shapes of the API: OpenAI's Responses through its client, Anthropic's Messages through theirs. What the demo model writes is
given by a grammar, as in test_tools.py."""
import json

import anthropic
import jsonschema
import openai
import openapi_spec_validator
import pytest
from anthropic import Anthropic
from openai import OpenAI
from serving import Server, raw

PARAMETERS = {"type": "object", "properties": {"place": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["place", "days"], "additionalProperties": False}
FUNCTION = {"type": "function", "name": "weather", "description": "of a place", "parameters": PARAMETERS}
TOOL = {"name": "weather", "description": "of a place", "input_schema": PARAMETERS}
TEMPLATE = ("{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}[{{ m.role }}{% if m.reasoning_content %} thought {{ m.reasoning_content }}{% endif %}: "
            "{{ m.content }}{% for c in m.tool_calls or [] %} calls {{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}"
            "{% if m.tool_call_id %} for {{ m.tool_call_id }}{% endif %}]\n{% endfor %}{% if enable_thinking %}</think>{% endif %}")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Röm", "days": 2}}\n</tool_call>'
WRITTEN = f"<think>\nHm.\n</think>\n\nLet me see.\n{CALL}\n{CALL}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    template = tmp_path_factory.mktemp("shapes") / "template.jinja"
    template.write_text(TEMPLATE)
    served = Server("--chat-template", str(template), "--api-key", "open-sesame")
    yield served
    assert served.stop() == 0


@pytest.fixture(scope="module")
def responses(server):
    return OpenAI(base_url=f"{server.url}/v1", api_key="open-sesame", max_retries=0, timeout=60).responses


@pytest.fixture(scope="module")
def messages(server):
    return Anthropic(base_url=server.url, api_key="open-sesame", max_retries=0, timeout=60).messages


def guided(text):
    return {"guided_choice": [text], "temperature": 0}


# Responses.

def respond(responses, **params):
    return responses.create(**{"model": "demo", "input": "Weather?", "max_output_tokens": 200, "temperature": 1, **params})


def test_a_response(responses):
    r = respond(responses, instructions="Be brief.", extra_body=guided("Yes, 4°."), metadata={"a": "b"})
    assert r.output_text == "Yes, 4°." and r.status == "completed" and r.object == "response" and r.id.startswith("resp_")
    assert r.instructions == "Be brief." and r.metadata == {"a": "b"} and r.tools == [] and r.store is False and r.error is None
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and r.usage.output_tokens > 0


def test_items_of_a_response(responses):
    r = respond(responses, tools=[FUNCTION], extra_body=guided(WRITTEN))
    assert [x.type for x in r.output] == ["reasoning", "message", "function_call", "function_call"]
    thought, said, first, second = r.output
    assert thought.content[0].text == "Hm." and said.content[0].text == r.output_text == "Let me see."
    assert first.name == "weather" and json.loads(first.arguments) == {"place": "Röm", "days": 2} and first.call_id != second.call_id
    assert len({x.id for x in r.output}) == 4 and r.usage.output_tokens_details.reasoning_tokens > 0


def test_events_of_a_response(responses):
    events = list(respond(responses, tools=[FUNCTION], stream=True, extra_body=guided(WRITTEN)))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"] and events[-1].type == "response.completed"
    final, text, arguments, thought = events[-1].response, "", {}, ""
    for e in events:
        if e.type == "response.output_text.delta":
            text += e.delta
        elif e.type == "response.reasoning_text.delta":
            thought += e.delta
        elif e.type == "response.function_call_arguments.delta":
            arguments[e.output_index] = arguments.get(e.output_index, "") + e.delta
        elif e.type == "response.output_item.done":
            assert final.output[e.output_index] == e.item
    assert (text, thought) == (final.output_text, "Hm.") == ("Let me see.", "Hm.")
    assert [arguments[i] for i in (2, 3)] == [x.arguments for x in final.output[2:]] and len(final.output) == 4
    added = [e.output_index for e in events if e.type == "response.output_item.added"]
    assert added == list(range(4)) == [e.output_index for e in events if e.type == "response.output_item.done"]


def test_the_client_gathers_a_stream(responses):
    """Its own accumulator checks the order of events."""
    with responses.stream(model="demo", input="Weather?", tools=[FUNCTION], extra_body=guided(WRITTEN)) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Let me see."


def test_a_round_of_functions(responses, messages):
    """What came back may be sent again as it is, with the results."""
    first = respond(responses, tools=[FUNCTION], extra_body=guided(WRITTEN))
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}, *[x.to_dict() for x in first.output]]
    items += [{"type": "function_call_output", "call_id": first.output[2].call_id, "output": "sunny"}]
    second = respond(responses, input=items, tools=[FUNCTION], tool_choice="none", extra_body=guided("Sunny."))
    assert second.output_text == "Sunny."
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Let me see."}]
    blocks += [{"type": "tool_use", "id": x.call_id, "name": x.name, "input": json.loads(x.arguments)} for x in first.output[2:]]
    same = messages.count_tokens(model="demo", messages=[
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]}, {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.output[2].call_id, "content": "sunny"}]}])
    assert same.input_tokens == second.usage.input_tokens


def test_demanded_functions(responses):
    for choice in ("required", {"type": "function", "name": "weather"}):
        (call,) = respond(responses, tools=[FUNCTION], tool_choice=choice, parallel_tool_calls=False, temperature=2).output
        jsonschema.validate(json.loads(call.arguments), PARAMETERS)


def test_formats(responses):
    schema = {"type": "json_schema", "name": "w", "schema": PARAMETERS, "strict": True}
    jsonschema.validate(json.loads(respond(responses, text={"format": schema}, temperature=2).output_text), PARAMETERS)
    r = respond(responses, text={"format": schema}, max_output_tokens=3)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("params, field", [
    ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"extra_body": {"conversation": "c"}}, "conversation"), ({"background": True}, "background"),
    ({"input": []}, "input"), ({"input": [{"role": "user"}]}, "input"), ({"input": [{"role": "clown", "content": "x"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input"), ({"input": [{"type": "function_call", "name": "f"}]}, "input"),
    ({"input": [{"type": "computer_call"}]}, "input"), ({"tools": [{"type": "web_search"}]}, "tools"), ({"truncation": "auto"}, "truncation"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "nope"}}, "tool_choice"), ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "text.format"),
    ({"input": "word " * 5000}, "input"), ({"instructions": 7}, "instructions"), ({"temperature": "hot"}, "temperature"),
    ({"extra_body": {"response_format": {"type": "json_object"}}}, "text.format"), ({"extra_body": {"n": 2}}, "n"), ({"extra_body": {"prompt_logprobs": 1}}, "prompt_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "include"), ({"extra_body": {"messages": [{"role": "user", "content": "x"}]}}, "input"),
])
def test_bad_responses(responses, params, field):
    with pytest.raises(openai.BadRequestError) as e:
        respond(responses, **params)
    assert e.value.body["param"] == field, e.value.message


# Messages.

def ask(client, **params):
    return client.create(**{"model": "demo", "messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 200, **params})


def prompt_of(usage):
    """All tokens of the prompt: as with Anthropic, input_tokens are those that were not cached."""
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_cached_tokens_are_told_apart(messages):
    """In whole answers and in streams, at their beginning and their end; what is counted ahead is all of them."""
    turn = {"model": "demo", "max_tokens": 4, "messages": [{"role": "user", "content": "How is the weather where nobody has asked before? " * 3}]}
    whole = messages.count_tokens(model="demo", messages=turn["messages"]).input_tokens
    first = messages.create(**turn).usage
    assert (first.input_tokens, first.cache_read_input_tokens, first.cache_creation_input_tokens) == (whole, 0, 0)
    second = messages.create(**turn).usage
    assert second.cache_read_input_tokens > 0 and prompt_of(second) == whole
    with messages.stream(**turn) as stream:
        [begun] = [e.message.usage for e in stream if e.type == "message_start"]
        ended = stream.get_final_message().usage
    assert prompt_of(begun) == prompt_of(ended) == whole and begun.cache_read_input_tokens == ended.cache_read_input_tokens == second.cache_read_input_tokens


def test_a_message(messages):
    m = ask(messages, system="Be brief.", extra_body=guided("Yes, 4°."))
    assert m.content[0].text == "Yes, 4°." and m.stop_reason == "end_turn" and m.role == "assistant" and m.id.startswith("msg_")
    assert prompt_of(m.usage) > 5 and m.usage.output_tokens > 2
    assert ask(messages, max_tokens=2, extra_body=guided("Yes, 4°.")).stop_reason == "max_tokens"
    m = ask(messages, stop_sequences=[" in", " and"], extra_body=guided("Rain and sun."))
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == " and" and m.content[0].text == "Rain"


def test_blocks_of_a_message(messages):
    m = ask(messages, tools=[TOOL], extra_body=guided(WRITTEN))
    assert [b.type for b in m.content] == ["thinking", "text", "tool_use", "tool_use"] and m.stop_reason == "tool_use"
    assert m.content[0].thinking == "Hm." and m.content[1].text == "Let me see." and m.content[2].input == {"place": "Röm", "days": 2}
    with messages.stream(model="demo", max_tokens=200, messages=[{"role": "user", "content": "Weather?"}], tools=[TOOL], extra_body=guided(WRITTEN)) as stream:
        kinds = [e.type for e in stream if e.type in ("message_start", "message_delta", "message_stop")]
        final = stream.get_final_message()
    assert kinds == ["message_start", "message_delta", "message_stop"] and final.stop_reason == "tool_use"
    for a, b in zip(final.content, m.content, strict=True):
        ignored = {"id", "caller", "parsed_output"}
        assert {k: v for k, v in a.to_dict().items() if k not in ignored} == {k: v for k, v in b.to_dict().items() if k not in ignored}
    assert final.usage.output_tokens == m.usage.output_tokens and prompt_of(final.usage) == prompt_of(m.usage)


def test_demanded_tools(messages):
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
        m = ask(messages, tools=[TOOL], tool_choice=choice)
        assert m.stop_reason == "tool_use"
        jsonschema.validate(m.content[0].input, PARAMETERS)
    assert ask(messages, tools=[TOOL], tool_choice={"type": "none"}, extra_body=guided(CALL)).content[0].type == "text"


def test_a_last_message_is_continued(messages, server):
    user = {"role": "user", "content": "Weather?"}
    whole = messages.count_tokens(model="demo", messages=[user]).input_tokens
    assert messages.count_tokens(model="demo", messages=[user], system="Be brief.").input_tokens > whole
    begun = ask(messages, messages=[user, {"role": "assistant", "content": "It is"}], extra_body=guided(" sunny."))
    assert begun.content[0].text == " sunny." and prompt_of(begun.usage) > whole


def test_a_schema(messages):
    body = {"output_config": {"format": {"type": "json_schema", "schema": PARAMETERS}}}
    jsonschema.validate(json.loads(ask(messages, extra_body=body).content[0].text), PARAMETERS)


@pytest.mark.parametrize("params", [
    {"messages": []}, {"messages": [{"role": "system", "content": "x"}]}, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
    {"system": 7}, {"tools": [{"name": "x"}]}, {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "nope"}}, {"tool_choice": {"type": "some"}},
    {"max_tokens": 0}, {"extra_body": {"mcp_servers": [{}]}}, {"extra_body": {"thinking": {"type": "deep"}}}, {"messages": [{"role": "user", "content": "word " * 5000}]},
    {"extra_body": {"response_format": {"type": "json_object"}}}, {"extra_body": {"n": 2}}, {"extra_body": {"logprobs": True}}, {"extra_body": {"max_completion_tokens": 3}},
])
def test_bad_messages(messages, params):
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(messages, **params)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"


def test_errors_of_messages(server, messages):
    """In Anthropic's shape also where nobody has looked at the body."""
    for key, body, status, kind in (("no", b"{}", 401, "authentication_error"), ("open-sesame", b"{", 400, "invalid_request_error"),
                                    ("open-sesame", b'{"model": "nope", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}', 404, "not_found_error")):
        got, _, answer = raw(server.address, "POST", "/v1/messages", body, {"x-api-key": key})
        assert (got, json.loads(answer)["error"]["type"]) == (status, kind)
    with pytest.raises(anthropic.NotFoundError):
        ask(messages, model="nope")


# What is served.

SERVED = ("model stream stream_options max_tokens min_tokens n best_of seed stop stop_token_ids include_stop_str_in_output ignore_eos temperature top_p top_k min_p presence_penalty "
          "frequency_penalty repetition_penalty logit_bias bad_words allowed_token_ids prompt_logprobs truncate_prompt_tokens cache_salt priority response_format "
          "structured_outputs guided_json guided_regex guided_choice guided_grammar guided_json_object grammar json_schema")


def test_the_description(server):
    """It is a valid one, and what it names is there: each path takes the method that it says, and requests need what it says they need."""
    api = json.loads(raw(server.address, "GET", "/openapi.json")[2])
    openapi_spec_validator.validate(api)
    for path, more in (("/v1/completions", "logprobs echo add_special_tokens"), ("/v1/chat/completions", "top_logprobs tools documents reasoning_effort")):
        schema = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(f"{SERVED} {more}".split()) <= set(schema["properties"]), path
    assert {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models", "/v1/models/{name}", "/health"} <= set(api["paths"])
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            at, key = path.replace("{name}", "demo"), {"Authorization": "Bearer open-sesame"}
            status, _, body = raw(server.address, method.upper(), at, b"{}" if method == "post" else b"", key)
            assert status == (400 if method == "post" else 200), (path, body)
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert set(schema["required"]) <= set(schema["properties"])
                words = {"type": "object", "array": 7, "string": 7, "number": "x", "integer": "x", "boolean": "x", "object": 7}
                given = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x", "max_tokens": 2}
                good = {k: v for k, v in given.items() if k in schema["properties"] and k != "max_tokens" or k in schema["required"]}
                for name, what in schema["properties"].items():
                    if name in ("metadata", "documents", "json_schema") or "type" not in what:
                        continue
                    wrong = json.dumps({**good, name: words[what["type"]]})
                    assert raw(server.address, "POST", at, wrong, key)[0] in (400, 404), (path, name)
