"""The openai client of version 2: completions, chats, Responses; streams, a schema, demanded calls, errors. Version 3 is in tests/e2e."""
import json

import openai
from record import EVA, SENTENCE, URL, Record

assert openai.__version__.startswith("2."), openai.__version__
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
ask = {"model": "json", "messages": [{"role": "user", "content": SENTENCE}], "temperature": 0}
assert "json" in [m.id for m in client.models.list()]
prompt = {"model": "json", "prompt": SENTENCE, "max_tokens": 60, "temperature": 0}
text = client.completions.create(**prompt).choices[0].text
assert "".join(c.choices[0].text for c in client.completions.create(**prompt, stream=True)) == text
whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2).choices[0]
assert len(whole.logprobs.content[0].top_logprobs) == 2
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.message.content and chunks[-1].usage.completion_tokens > 0
assert client.chat.completions.parse(**ask, response_format=Record).choices[0].message.parsed == EVA
tool = openai.pydantic_function_tool(Record, name="record")
[call] = client.chat.completions.create(**ask, tools=[tool], tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
assert Record(**json.loads(call.function.arguments)) == EVA
params = {"model": "json", "input": SENTENCE, "temperature": 0}
assert client.responses.parse(**params, text_format=Record).output_parsed == EVA
with client.responses.stream(**params) as stream:
    told = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert told == stream.get_final_response().output_text and "Eva" in told
for bad, error in (({"model": "nope"}, openai.NotFoundError), ({"temperature": -1}, openai.BadRequestError)):
    try:
        client.chat.completions.create(**{**ask, **bad})
    except error:
        continue
    raise AssertionError(f"no {error.__name__}")
