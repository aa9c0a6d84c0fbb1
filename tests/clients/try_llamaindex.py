"""llama-index: completion, chat, streams, structured prediction by a function."""
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from record import EVA, SENTENCE, URL, Record
from record import record as keep

llm = OpenAILike(api_base=URL, api_key="none", model="json", is_chat_model=True, is_function_calling_model=True, temperature=0, max_tokens=200, max_retries=0)
question = ChatMessage(role="user", content=SENTENCE)
text = llm.chat([question]).message.content
assert "Eva" in text and "".join(c.delta for c in llm.stream_chat([question])) == text
got = llm.structured_predict(Record, PromptTemplate("{sentence}"), sentence=SENTENCE)
assert got == EVA, got
answer = llm.chat_with_tools([FunctionTool.from_defaults(keep)], user_msg=question, tool_required=True)
(call,) = llm.get_tool_calls_from_response(answer)
assert Record(**call.tool_kwargs) == EVA, call
