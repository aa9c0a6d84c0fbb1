"""instructor: its modes TOOLS, JSON and JSON_SCHEMA, whole and partial."""
import instructor
from openai import OpenAI
from record import EVA, SENTENCE, URL, Record

for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(OpenAI(base_url=URL, api_key="none"), mode=mode)
    ask = dict(model="json", response_model=Record, messages=[{"role": "user", "content": SENTENCE}], temperature=0, max_retries=0)
    got = client.chat.completions.create(**ask)
    assert got.model_dump() == EVA.model_dump(), (mode, got)
    parts = list(client.chat.completions.create_partial(**ask))
    assert Record(**parts[-1].model_dump()) == EVA and len(parts) > 3, (mode, parts)
    print(mode, got)
