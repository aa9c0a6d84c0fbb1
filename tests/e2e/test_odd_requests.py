"""Bad and odd requests, and the answer that each gets: one line each, (what is asked, status, part of the message).

The demo model serves. A body here is added to a request that is good by itself, so what a line shows is all that is odd about
it. 200 has no message: it is odd, and served. Nothing may hurt who comes next: at the end one request is asked as always.
"""
import json

from serving import raw

PROMPT, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD = {PROMPT: {"model": "demo", "prompt": "Eva from Rome", "max_tokens": 2, "temperature": 0},
        CHAT: {"model": "demo", "messages": [{"role": "user", "content": "Eva"}], "max_tokens": 2, "temperature": 0}}
USER = {"role": "user", "content": "x"}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
ABSENT = object()                       # the field is left out


def chat(*messages, **more):
    return {"messages": list(messages), **more}


# Bodies as they are.
RAW = [
    (PROMPT, b"", 400, "JSON"), (PROMPT, b"{", 400, "JSON"), (PROMPT, b"null", 400, "object"), (PROMPT, b"[]", 400, "object"),
    (PROMPT, b'"x"', 400, "object"), (PROMPT, b"{}", 400, "model"), (CHAT, b"{}", 400, "model"), (PROMPT, b'{"model": "demo"} x', 400, "JSON"),
    (PROMPT, b'{"model": "demo", "model": "sql"}', 400, "JSON"), (PROMPT, b'{"model": "demo", "prompt": "\xff"}', 400, "decode"),
    (PROMPT, b'{"model": "demo", "prompt": "\\ud800"}', 400, "JSON"), (PROMPT, b"{'model': 'demo'}", 400, "JSON"),
    (PROMPT, b'{"model": "demo", "prompt": NaN}', 400, "JSON"), (PROMPT, b"[" * 100000, 400, "JSON"),
    (PROMPT, b'{"model": "demo", "prompt": "a", "max_tokens": 1e999}', 400, "JSON"), ("/v1/nothing", b"{}", 404, "nothing at"),
]

# Fields of completions.
COMPLETIONS = [
    ({"model": ABSENT}, 400, "model"), ({"model": 5}, 400, "model"), ({"model": None}, 400, "model"), ({"model": ""}, 404, "no model"),
    ({"model": "nobody"}, 404, "nobody"), ({"model": "../demo"}, 404, "no model"), ({"model": "demo\0x"}, 404, "model"),
    ({"prompt": ABSENT}, 400, "prompt"), ({"prompt": None}, 400, "prompt"), ({"prompt": 5}, 400, "prompt"), ({"prompt": {}}, 400, "prompt"),
    ({"prompt": []}, 400, "empty"), ({"prompt": [[]]}, 400, "empty"), ({"prompt": [True]}, 400, "token id"), ({"prompt": [1.5]}, 400, "token id"),
    ({"prompt": [-1]}, 400, "token id"), ({"prompt": [1 << 40]}, 400, "token id"), ({"prompt": [999999]}, 400, "vocabulary"),
    ({"prompt": ["a", 5]}, 400, "prompt"), ({"prompt": [[1], "a"]}, 200, None), ({"prompt": ["a"] * 129}, 400, "choices"),
    ({"prompt": [1] * 5000}, 400, "maximum context length"), ({"prompt": "lamps " * 9000}, 400, "maximum context length"),
    ({"prompt": ""}, 200, None), ({"prompt": "a\0b"}, 200, None), ({"prompt": "☃" * 20}, 200, None),
    ({"max_tokens": -1}, 400, "max_tokens"), ({"max_tokens": 0}, 400, "max_tokens"), ({"max_tokens": 1.5}, 400, "max_tokens"),
    ({"max_tokens": "2"}, 400, "max_tokens"), ({"max_tokens": None}, 200, None), ({"max_tokens": 10 ** 12}, 400, "max_tokens"),
    ({"max_tokens": 0, "echo": True}, 200, None), ({"min_tokens": 3}, 400, "min_tokens"), ({"min_tokens": -1}, 400, "min_tokens"),
    ({"temperature": -0.1}, 400, "temperature"), ({"temperature": "hot"}, 400, "temperature"), ({"temperature": 101}, 400, "temperature"),
    ({"temperature": 100}, 200, None), ({"top_p": 0}, 400, "top_p"), ({"top_p": 1.01}, 400, "top_p"), ({"top_k": -2}, 400, "top_k"),
    ({"top_k": -1}, 200, None), ({"min_p": -1}, 400, "min_p"), ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    ({"presence_penalty": 2.5}, 400, "presence_penalty"), ({"frequency_penalty": -2.5}, 400, "frequency_penalty"),
    ({"n": 0}, 400, "n"), ({"n": 129}, 400, "n"), ({"n": 2, "best_of": 1}, 400, "best_of"), ({"best_of": 3, "stream": True}, 400, "best_of"),
    ({"best_of": 3}, 200, None), ({"seed": 1.5}, 400, "seed"), ({"seed": -7}, 200, None), ({"seed": 2 ** 70}, 400, "seed"),
    ({"stop": 5}, 400, "stop"), ({"stop": ""}, 400, "stop"), ({"stop": ["a"] * 17}, 400, "stop"), ({"stop": []}, 200, None),
    ({"stop": None}, 200, None), ({"stop_token_ids": ["a"]}, 400, "stop_token_ids"), ({"stop_token_ids": [999999]}, 400, "vocabulary"),
    ({"logprobs": -1}, 400, "logprobs"), ({"logprobs": 21}, 400, "logprobs"), ({"logprobs": True}, 400, "logprobs"),
    ({"prompt_logprobs": -1}, 400, "prompt_logprobs"), ({"prompt_logprobs": 1, "stream": True}, 400, "prompt_logprobs"),
    ({"echo": "yes"}, 400, "echo"), ({"suffix": "end"}, 400, "suffix"), ({"suffix": ""}, 200, None),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias"), ({"logit_bias": {"5": 101}}, 400, "logit_bias"), ({"logit_bias": {"999999": 1}}, 400, "vocabulary"),
    ({"logit_bias": {"5": -100}}, 200, None), ({"allowed_token_ids": []}, 400, "allowed_token_ids"), ({"bad_words": "x"}, 400, "bad_words"),
    ({"cache_salt": "s" * 1024}, 200, None), ({"cache_salt": "s" * 1025}, 400, "cache_salt"), ({"cache_salt": 7}, 400, "cache_salt"),
    ({"ignore_eos": 1}, 400, "ignore_eos"), ({"stream": "true"}, 400, "stream"), ({"stream_options": {}}, 400, "stream_options"),
    ({"stream": True, "stream_options": []}, 400, "stream_options"), ({"truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens"),
    ({"prompt": [5] * 5000, "truncate_prompt_tokens": 3}, 200, None), ({"add_special_tokens": 1}, 400, "add_special_tokens"),
    ({"use_beam_search": True}, 400, "use_beam_search"), ({"length_penalty": 2}, 400, "length_penalty"), ({"lora": [{"id": 0, "scale": 1}]}, 400, "lora"),
    ({"lora": []}, 200, None), ({"mirostat": 2}, 400, "mirostat"), ({"typical_p": 0.5}, 400, "typical_p"), ({"repeat_penalty": 1.1}, 400, "repeat_penalty"),
    ({"n_predict": 9}, 400, "n_predict"), ({"n_predict": -1}, 200, None), ({"samplers": ["top_k"]}, 400, "samplers"),
    ({"top_n_sigma": 1}, 400, "top_n_sigma"), ({"num_beams": 2}, 400, "num_beams"), ({"no_repeat_ngram_size": 3}, 400, "no_repeat_ngram_size"),
    ({"regex": "a"}, 400, "regex"), ({"ebnf": "a"}, 400, "ebnf"), ({"lora_path": "/x"}, 400, "lora_path"), ({"watermark": True}, 400, "watermark"),
    ({"skip_special_tokens": False}, 400, "skip_special_tokens"), ({"return_token_ids": True}, 400, "return_token_ids"),
    ({"prompt_embeds": "AAAA"}, 400, "prompt_embeds"), ({"logits_processors": ["x"]}, 400, "logits_processors"), ({"tools": [FUNCTION]}, 400, "tools"),
    ({"guided_regex": "("}, 400, "guided_regex"), ({"guided_choice": []}, 400, "guided_choice"), ({"guided_json": 5}, 400, "guided_json"),
    ({"guided_json": {}, "guided_regex": "a"}, 400, "cannot both"), ({"grammar": "root ::= ("}, 400, "grammar"), ({"grammar": "root ::="}, 200, None),
    ({"response_format": "json"}, 400, "response_format"), ({"response_format": {"type": "text"}}, 200, None),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "patternProperties": {"(": {}}}}}}, 400, "response_format"),
    ({"structured_outputs": {}}, 400, "structured_outputs"), ({"priority": "high"}, 400, "priority"),
    ({"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "never_heard_of": [1]}, 200, None),
]

# Fields of chats.
CHATS = [
    ({"messages": ABSENT}, 400, "messages"), ({"messages": []}, 400, "messages"), ({"messages": "hi"}, 400, "messages"), ({"messages": [5]}, 400, "role"),
    (chat({"content": "x"}), 400, "role"), (chat({"role": "", "content": "x"}), 400, "role"), (chat({"role": 5, "content": "x"}), 400, "role"),
    (chat({"role": "user", "content": 5}), 400, "content"), (chat({"role": "user", "content": {"text": "x"}}), 400, "content"),
    (chat({"role": "user", "content": [{"type": "text", "text": "x"}]}), 200, None), (chat({"role": "user", "content": [{"type": "text"}]}), 400, "text"),
    (chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), 400, "text"), (chat({"role": "user", "content": [5]}), 400, "text"),
    (chat({"role": "user", "content": ""}), 200, None), (chat({"role": "user", "content": "x " * 9000}), 400, "maximum context length"),
    ({"max_completion_tokens": 0}, 400, "max_"), ({"max_completion_tokens": "x"}, 400, "max_completion_tokens"), ({"max_tokens": 1, "max_completion_tokens": 2}, 200, None),
    ({"logprobs": 2}, 400, "logprobs"), ({"top_logprobs": 2}, 400, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
    ({"echo": True}, 400, "echo"), ({"echo": False}, 200, None), ({"chat_template": "{{ x }}"}, 400, "chat_template"),
    ({"chat_template_kwargs": []}, 400, "chat_template_kwargs"), ({"continue_final_message": True}, 200, None),
    ({"continue_final_message": 1}, 400, "continue_final_message"), ({"add_generation_prompt": "no"}, 400, "add_generation_prompt"),
    ({"functions": [{"name": "f"}]}, 400, "functions"), ({"audio": {"voice": "x"}}, 400, "audio"), ({"web_search_options": {"a": 1}}, 400, "web_search_options"),
    ({"tools": "f"}, 400, "tools"), ({"tools": [{}]}, 400, "tool 0"), ({"tools": [{"type": "function"}]}, 400, "tool 0"),
    ({"tool_choice": "required"}, 400, "tool"), ({"tools": [FUNCTION], "tool_choice": "sometimes"}, 400, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "g"),
    ({"tools": [FUNCTION], "tool_choice": "required", "guided_regex": "a"}, 400, "cannot both"), ({"tools": [], "tool_choice": "none"}, 200, None),
    ({"parallel_tool_calls": "x"}, 400, "parallel_tool_calls"), ({"response_format": {"type": "xml"}}, 400, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, 400, "schema"), ({"response_format": {"type": "json_object"}}, 200, None),
    ({"prompt_logprobs": 0}, 200, None), ({"n": 2}, 200, None), ({"model": "rot13"}, 200, None), ({"reasoning_effort": "low"}, 200, None), ({"reasoning_effort": 3}, 400, "reasoning_effort"),
]


def lines():
    """(path, body, status, part of the message) of all."""
    for path, body, status, says in RAW:
        yield path, body, status, says
    for path, table in ((PROMPT, COMPLETIONS), (CHAT, CHATS)):
        for odd, status, says in table:
            body = {key: value for key, value in {**GOOD[path], **odd}.items() if value is not ABSENT}
            yield path, json.dumps(body).encode(), status, says


def test_there_are_enough():
    assert len(list(lines())) >= 150


def test_each_gets_its_answer(server):
    wrong = []
    for path, body, status, says in lines():
        got, headers, text = raw(server.address, "POST", path, body, {"Content-Type": "application/json"})
        if got != status:
            wrong.append((body[:200], status, got, text[:300]))
        elif status != 200:
            error = json.loads(text)["error"]
            if says not in error["message"] or not error["type"] or "\n" in error["message"]:
                wrong.append((body[:200], says, error))
    assert not wrong, "\n".join(map(str, wrong))
    got, _, text = raw(server.address, "POST", PROMPT, json.dumps(GOOD[PROMPT]).encode())
    assert got == 200 and json.loads(text)["choices"][0]["finish_reason"] in ("stop", "length")
