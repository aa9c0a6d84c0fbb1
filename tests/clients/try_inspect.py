"""inspect-ai: a task with a scorer, by chats and by Responses; a schema, a tool that must be called, logprobs."""
import json
import os
import tempfile

os.environ["OPENAI_API_KEY"] = "none"

from inspect_ai import Task  # noqa: E402
from inspect_ai import eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402
from inspect_ai.util import json_schema  # noqa: E402
from record import EVA, SENTENCE, URL, Record  # noqa: E402

kept = []


@tool
def record():
    async def execute(name: str, city: str, item: str, colour: str, quantity: int, price: int):
        """Keep a record.

        Args:
            name: who bought
            city: where from
            item: what
            colour: which colour
            quantity: how many
            price: of each
        """
        kept.append(Record(name=name, city=city, item=item, colour=colour, quantity=quantity, price=price))
        return "kept"

    return execute


def run(task, model, **params):
    """The only sample of a task, which must have come to its end."""
    with tempfile.TemporaryDirectory() as logs:
        [log] = evaluate(task, model=model, log_dir=logs, display="none", temperature=0, max_tokens=200, **params)
        assert log.status == "success", log.error
        return log, log.samples[0]


def main():
    sample = Sample(input=SENTENCE, target="Eva")
    for responses in (False, True):
        model = get_model("openai/json", base_url=URL, api_key="none", responses_api=responses, memoize=False)
        log, got = run(Task(dataset=[sample], scorer=includes()), model)
        assert log.results.scores[0].metrics["accuracy"].value == 1 and got.output.usage.output_tokens > 0, got.output
        schema = GenerateConfig(response_schema=ResponseSchema(name="record", json_schema=json_schema(Record), strict=True))
        _, got = run(Task(dataset=[sample], config=schema, scorer=includes()), model)
        assert Record(**json.loads(got.output.completion)) == EVA, got.output.completion
        kept.clear()
        _, got = run(Task(dataset=[sample], solver=[use_tools(record(), tool_choice="any"), generate(tool_calls="single")], scorer=includes()), model)
        assert kept == [EVA] and any(m.role == "tool" for m in got.messages), got.messages
    chats = get_model("openai-api/punica/json", base_url=URL, api_key="none", memoize=False)
    _, got = run(Task(dataset=[sample], scorer=includes()), chats, logprobs=True, top_logprobs=2)
    tokens = got.output.choices[0].logprobs.content
    assert "".join(t.token for t in tokens).startswith(got.output.completion[:20]) and len(tokens[0].top_logprobs) == 2
    print(got.output.completion)


main()
