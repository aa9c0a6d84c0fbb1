"""langchain-openai: the three methods of structured output, bind_tools, streams, and a round of tools."""
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from record import EVA, SENTENCE, URL, Record
from record import record as keep

model = ChatOpenAI(base_url=URL, api_key="none", model="json", temperature=0, max_retries=0)
for method in ("function_calling", "json_schema", "json_mode"):
    got = model.with_structured_output(Record, method=method).invoke(SENTENCE)
    assert got == EVA, (method, got)
    print(method, got)

bound = model.bind_tools([tool(keep)], tool_choice="any")
question = HumanMessage(SENTENCE)
answer = bound.invoke([question])
(call,) = answer.tool_calls
assert call["name"] == "record" and Record(**call["args"]) == EVA, call
gathered = None
for chunk in bound.stream([question]):
    gathered = chunk if gathered is None else gathered + chunk
assert gathered.tool_calls[0]["args"] == call["args"]
after = model.invoke([question, answer, ToolMessage("kept", tool_call_id=call["id"])])
assert isinstance(after.content, str) and after.usage_metadata["output_tokens"] > 0
plain = model.bind_tools([tool(keep)]).invoke([question])
assert not plain.tool_calls and plain.content
responses = ChatOpenAI(base_url=URL, api_key="none", model="json", temperature=0, max_retries=0, use_responses_api=True)
assert "Eva" in responses.invoke(SENTENCE).text
