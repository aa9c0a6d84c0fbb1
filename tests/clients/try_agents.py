"""The Agents SDK over /v1/responses: a tool that must be called, an output of a type, streams."""
import asyncio

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from record import EVA, SENTENCE, URL, Record

set_tracing_disabled(True)
model = OpenAIResponsesModel(model="json", openai_client=AsyncOpenAI(base_url=URL, api_key="none", max_retries=0))
kept = []


@function_tool
def record(name: str, city: str, item: str, colour: str, quantity: int, price: int) -> str:
    """Keep a record."""
    kept.append(Record(name=name, city=city, item=item, colour=colour, quantity=quantity, price=price))
    return "kept"


async def main():
    typed = Agent(name="typed", instructions="Be exact.", model=model, output_type=Record, model_settings=ModelSettings(temperature=0))
    assert (await Runner.run(typed, SENTENCE)).final_output == EVA
    caller = Agent(name="caller", model=model, tools=[record], tool_use_behavior="stop_on_first_tool",
                   model_settings=ModelSettings(temperature=0, tool_choice="required", parallel_tool_calls=False))
    assert (await Runner.run(caller, SENTENCE)).final_output == "kept" and kept == [EVA], kept
    rounds = Agent(name="rounds", model=model, tools=[record], model_settings=ModelSettings(temperature=0, tool_choice="record", max_tokens=100))
    answer = await Runner.run(rounds, SENTENCE)
    assert isinstance(answer.final_output, str) and kept == [EVA, EVA]
    plain = Agent(name="plain", model=model, model_settings=ModelSettings(temperature=0))
    stream, text = Runner.run_streamed(plain, SENTENCE), ""
    async for event in stream.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert text == stream.final_output and "Eva" in text


asyncio.run(main())
