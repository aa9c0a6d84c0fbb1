#!/usr/bin/env python3
"""Compare `punica template` with Transformers' apply_chat_template: every *.jinja file of the folders given, over many
kinds of conversation. Both must give the same text, or both must refuse.

    python3 -m venv venv && venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    venv/bin/python tools/compare_templates.py [--punica build/punica] [--verbose] FOLDER...

Run by hand: the templates that models ship are other people's and not in this tree. Prints each difference and ends
with the counts; the exit code is 1 if there is a difference.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from golden_chat import NOW, ROOT, reference  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, number=0):
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = message("system", "You count things.")
USER = message("user", "How many lamps are there?")
ANSWER = message("assistant", "Three lamps.")
MORE = message("user", "And kites?")
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, \"now\" & <later>.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "A town, e.g. Köln"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7.5}}, "required": ["place"]}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "The time",
    "parameters": {"type": "object", "properties": {"zones": {"type": "array", "items": {"type": "string"}},
                                                    "exact": {"type": ["boolean", "null"]}},
                   "required": []}, "return": {"type": "object"}}}
PLAIN_TOOL = {"type": "function", "function": {"name": "ping", "description": "Ping.", "parameters": {"type": "object", "properties": {}}}}
NESTED = {"type": "function", "function": {
    "name": "order", "description": "Order things.\nIn two lines.", "strict": True,
    "parameters": {"type": "object", "additionalProperties": False, "$defs": {"n": {"type": "number"}}, "properties": {
        "items": {"type": "array", "description": "What", "items": {"type": "object", "properties": {
            "name": {"type": "string", "description": "Its name"}, "n": {"type": "number"}}, "required": ["name"]}},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "no": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}},
        "when": {"oneOf": [{"type": "string"}, {"type": "null"}], "nullable": True}}, "required": ["items", "address"]}}}
TOOLS = [WEATHER, CLOCK]
ROUND = [message("user", "Weather in Köln?"),
         message("assistant", None, tool_calls=[call("get_weather", {"place": "Köln", "days": 2, "wet": True, "odds": 0.5})]),
         message("tool", "{\"temperature\": 21.5}", name="get_weather", tool_call_id="call00000")]
PARALLEL = [message("user", "Weather in Köln and Lima?"),
            message("assistant", "I look.", tool_calls=[call("get_weather", {"place": "Köln"}, 1), call("get_weather", {"place": "Lima", "unit": None}, 2)]),
            message("tool", "21", name="get_weather", tool_call_id="call00001"),
            message("tool", "18 <wet>", name="get_weather", tool_call_id="call00002"),
            message("assistant", "21 and 18."), message("user", "Thanks. And the time?")]
THOUGHT = [message("user", "2 + 2?"), message("assistant", "4", reasoning_content="Two and two.\nThat is four."),
           message("user", "And 3 + 3?")]
INLINE = [message("user", "2 + 2?"), message("assistant", "<think>\nTwo and two.\n</think>\n\n4"), message("user", "And 3 + 3?"),
          message("assistant", "<think>Three.</think>6"), message("user", "Good.")]
THOUGHT_CALL = [message("user", "Weather?"),
                message("assistant", "", reasoning_content="I must look.", tool_calls=[call("get_weather", {"place": "Rome"})]),
                message("tool", "hot", name="get_weather", tool_call_id="call00000")]

# For tools/random_templates.py.
VALUES = {"s": "Hello, Wörld  x", "e": "", "n": 7, "z": 0, "m": -3, "f": 2.5, "t": True, "no": None, "l": [3, 1, 2], "ls": ["b", "A", "c"],
          "d": {"b": 1, "a": "x", "items2": [1, 2]}, "ld": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "X"}], "big": 1e20, "tiny": 1.5e-7,
          "nested": {"a": {"b": [{"c": 5}]}}, "u": "ÄÖß ﬁ ΑΣ", "long": "a-b_c d.e\nf\tg", "html": "<a href='x'>&</a>", "num": " 42 ", "fl": "3.75"}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def on(messages, **more):
    return {"messages": messages, "add_generation_prompt": True, **more}


CONVERSATIONS = {
    "plain": on([USER]),
    "system": on([SYSTEM, USER]),
    "several turns": on([SYSTEM, USER, ANSWER, MORE]),
    "several turns without system": on([USER, ANSWER, MORE]),
    "ends with the assistant": on([USER, ANSWER]),
    "no generation prompt": {"messages": [SYSTEM, USER, ANSWER]},
    "no generation prompt, user last": {"messages": [USER], "add_generation_prompt": False},
    "continued": {"messages": [USER, message("assistant", "There are three")], "continue_final_message": True},
    "continued, blank at the end": {"messages": [SYSTEM, USER, message("assistant", "There are ")], "continue_final_message": True},
    "continued reasoning": {"messages": [USER, message("assistant", "", reasoning_content="I count")],
                            "continue_final_message": "reasoning_content"},
    "tools": on([USER], tools=TOOLS),
    "tools and system": on([SYSTEM, USER], tools=[PLAIN_TOOL, NESTED]),
    "no tools in a list": on([USER], tools=[]),
    "bare tool": on([USER], tools=[WEATHER["function"]]),
    "tool round": on(ROUND, tools=TOOLS),
    "tool round without tools": on(ROUND),
    "tool round, content empty": on([ROUND[0], {**ROUND[1], "content": ""}, ROUND[2]], tools=TOOLS),
    "tool round, content missing": on([ROUND[0], {"role": "assistant", "tool_calls": ROUND[1]["tool_calls"]}, ROUND[2]], tools=TOOLS),
    "tool round, arguments as text": on([ROUND[0], message("assistant", None, tool_calls=[call("get_weather", "{\"place\": \"Köln\"}")]),
                                         ROUND[2]], tools=TOOLS),
    "tool round, no arguments": on([ROUND[0], message("assistant", None, tool_calls=[call("ping", {})]), ROUND[2]], tools=[PLAIN_TOOL]),
    "tool round, answered": on([SYSTEM, *ROUND, message("assistant", "21.5 degrees."), MORE], tools=TOOLS),
    "tool round, no generation prompt": {"messages": ROUND, "tools": TOOLS},
    "parallel calls": on(PARALLEL, tools=TOOLS),
    "parallel calls, last": on(PARALLEL[:4], tools=TOOLS),
    "tool result as parts": on([*ROUND[:2], {**ROUND[2], "content": parts("21.5")}], tools=TOOLS),
    "tool result as object": on([*ROUND[:2], {**ROUND[2], "content": {"temperature": 21.5, "wet": False}}], tools=TOOLS),
    "thinking on": on([USER], enable_thinking=True, thinking=True),
    "thinking off": on([USER], enable_thinking=False, thinking=False),
    "thinking off, tools": on([SYSTEM, USER], tools=TOOLS, enable_thinking=False),
    "effort": on([SYSTEM, USER], reasoning_effort="high", thinking_budget=512),
    "reasoning in earlier turns": on(THOUGHT),
    "reasoning kept": on(THOUGHT, enable_thinking=True, preserve_thinking=True, clear_thinking=False),
    "reasoning in the text": on(INLINE),
    "reasoning in the text, thinking off": on(INLINE, enable_thinking=False),
    "reasoning before a call": on(THOUGHT_CALL, tools=TOOLS),
    "reasoning before a call, more turns": on([*THOUGHT_CALL, message("assistant", "Hot.", reasoning="It says hot."), MORE], tools=TOOLS),
    "reasoning last": {"messages": THOUGHT[:2]},
    "parts": on([message("user", parts("How many ", "lamps?"))]),
    "parts everywhere": on([message("system", parts("Count.")), message("user", parts("How many?")),
                            message("assistant", parts("Three.")), message("user", parts(" And kites?"))]),
    "no parts": on([message("user", [])]),
    "blanks around": on([message("system", " \n Count. \n"), message("user", "\n  How many?\t\n"), message("assistant", "  Three. \n\n"),
                         message("user", "\u00a0And?\u2028 \x1c")]),
    "empty content": on([message("user", "")]),
    "empty system": on([message("system", ""), USER]),
    "empty answer": on([USER, message("assistant", ""), MORE]),
    "null content": on([message("user", None)]),
    "null system": on([message("system", None), USER]),
    "unicode": on([message("system", "Ünïcødé ẞ"), message("user", "你好，🪁! e\u0301 \u200d \"quotes\" 'and' <tags> & \\ \x07")]),
    "template-like content": on([message("user", "{{ 7 * 7 }} {% if x %} <|im_end|> </s> [INST] {\"a\": 1}")]),
    "two users": on([USER, MORE]),
    "two assistants": on([USER, ANSWER, ANSWER, MORE]),
    "assistant first": on([ANSWER, USER]),
    "system late": on([USER, SYSTEM, MORE]),
    "system only": on([SYSTEM]),
    "two systems": on([SYSTEM, message("system", "Be brief."), USER]),
    "developer": on([message("developer", "Be brief."), USER]),
    "developer and tools": on([message("developer", "Be brief."), USER], tools=TOOLS),
    "unknown role": on([message("critic", "Bad."), USER]),
    "tool first": on([message("tool", "21", name="get_weather", tool_call_id="call00000"), USER]),
    "named user": on([message("user", "Hello", name="Eva"), message("assistant", "Hi", name="Bot"), MORE]),
    "documents": on([USER], documents=[{"title": "Lamps", "text": "There are three."}, {"title": "Kites", "text": "None."}]),
    "tools and documents": on([USER], tools=TOOLS, documents=[{"title": "Lamps", "text": "There are three."}]),
    "other variables": on([USER], date_string="1 May 2025", today="1 May 2025", custom_instructions="Be kind.", controls={"length": "short"},
                          system_message="S", tool_choice="auto", builtin_tools=["browser", "python"], model_identity="You are X.",
                          keep_past_thinking=True, response_format={"type": "json_object"}, xml_tools=TOOLS, python_tools=TOOLS),
    "values": on([USER], **VALUES),
    "long": on([SYSTEM] + [m for i in range(40) for m in (message("user", f"Question {i}?"), message("assistant", f"Answer {i}."))] + [USER]),
}


def ours(punica, model, path):
    lines = "".join(json.dumps(asked) + "\n" for asked in CONVERSATIONS.values())
    done = subprocess.run([punica, "template", "--model", model, "--chat-template", path, "--now", str(NOW)], input=lines,
                          capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}, timeout=600)
    if done.returncode == 2:
        return [{"error": done.stderr.strip()}] * len(CONVERSATIONS)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(text):
    return json.dumps(text, ensure_ascii=False)


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: {show(a[max(0, at - 40):at + 60])}\n        punica: {show(b[max(0, at - 40):at + 60])}"


def compare(name, kind, want, why, got, verbose):
    """Returns whether both agree; prints how they do not."""
    refused = isinstance(got, dict)
    if want is None and refused:
        if verbose:
            print(f"both refuse: {name}, {kind}\n        Transformers: {why}\n        punica: {got['error']}")
        return True
    if not refused and got == want:
        return True
    print(f"DIFFERENT: {name}, {kind}")
    if want is None:
        print(f"        Transformers raises {why}\n        punica: {show(got[-200:])}")
    elif refused:
        print(f"        punica refuses: {got['error']}")
    else:
        print(f"        {first_difference(want, got)}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--punica", default=ROOT / "build/punica", type=Path)
    parser.add_argument("--verbose", action="store_true", help="say also why both refuse")
    args = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(ROOT / "tests/golden/tokenizer/llama3/tokenizer.json"), **TOKENS)
    equal = refused = total = 0
    paths = sorted(p for folder in args.folder for p in folder.rglob("*.jinja"))
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "tokenizer_config.json").write_text(json.dumps(TOKENS))
        for path in paths:
            template = path.read_bytes().decode()
            for (kind, asked), got in zip(CONVERSATIONS.items(), ours(args.punica, model, path), strict=True):
                want, why = reference(tokenizer, template, asked)
                total += 1
                if compare(path.name, kind, want, why, got, args.verbose):
                    equal += want is not None
                    refused += want is None
    print(f"{len(paths)} templates x {len(CONVERSATIONS)} conversations = {total}: {equal} equal, {refused} refused by both, "
          f"{total - equal - refused} different")
    return equal + refused != total


if __name__ == "__main__":
    sys.exit(main())
