"""litellm: its own errors for a context that is too long, a model that is not there; streams, a schema."""
import json

import litellm
from record import EVA, SENTENCE, URL, Record

litellm.suppress_debug_info = True
ask = dict(model="openai/json", api_base=URL, api_key="none", messages=[{"role": "user", "content": SENTENCE}], temperature=0, num_retries=0)
text = litellm.completion(**ask).choices[0].message.content
assert "".join(c.choices[0].delta.content or "" for c in litellm.completion(**ask, stream=True)) == text
got = litellm.completion(**ask, response_format=Record).choices[0].message.content
assert Record(**json.loads(got)) == EVA, got
for params, error in (({"messages": [{"role": "user", "content": "word " * 20000}]}, litellm.ContextWindowExceededError), ({"model": "openai/nope"}, litellm.NotFoundError)):
    try:
        litellm.completion(**{**ask, **params})
    except error as e:
        print(type(e).__name__)
    else:
        raise AssertionError(f"no {error.__name__}")
