#!/usr/bin/env python3
"""500 streams at once on the demo model, over the base and all adapters, in every shape of the API, a fifth of them constrained (schemas, choices, regular
expressions, demanded calls). Every stream must end well and say exactly what the same request says alone, at temperature 0.

    PUNICA_BIN=build/punica build/venv/bin/python tests/clients/many_streams.py [--streams N] [--device NAME]

By hand: some minutes on a few cores.
"""
import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from cluster import DEMO  # noqa: E402
from serving import Server  # noqa: E402

MODELS = ["demo", *sorted(p.name for p in (DEMO / "adapters").iterdir())]
SENTENCES = ["On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them.",
             "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them.",
             "16 yellow cups at sixty-two francs each: that is what Zoe from Oslo ordered.",
             "September 26th, 2003: Max from Delhi purchased twelve white scarves, 19 dollars each."]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "city": {"enum": ["Rome", "Lima", "Oslo", "Delhi"]},
                                           "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}, "quantity": {"type": "integer", "maximum": 99}},
          "required": ["name", "city", "tags", "quantity"], "additionalProperties": False}
CONSTRAINTS = [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, {"guided_regex": r"[A-Z][a-z]{2,9} (bought|ordered) [0-9]{1,3}\."},
               {"guided_choice": ["yes", "no, not at all", "perhaps ☔"]},
               {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}], "tool_choice": "required", "parallel_tool_calls": False}]


def case(i):
    """(path, body) of request i."""
    model, sentence = MODELS[i % len(MODELS)], SENTENCES[i // len(MODELS) % len(SENTENCES)]
    body, chat = {"model": model, "temperature": 0, "max_tokens": 48}, {"messages": [{"role": "user", "content": sentence}]}
    if i % 5 == 0:
        return "/v1/chat/completions", {**body, **chat, "max_tokens": 200, **CONSTRAINTS[i // 5 % len(CONSTRAINTS)]}
    if i % 5 == 1:
        return "/v1/completions", {**body, "prompt": sentence}
    if i % 5 == 2:
        return "/v1/responses", {"model": model, "temperature": 0, "max_output_tokens": 48, "input": sentence}
    return "/v1/messages" if i % 5 == 3 else "/v1/chat/completions", {**body, **chat}


def text_of(event):
    """What an event of any shape adds to the answer."""
    kind = event.get("type", "")
    if kind in ("response.output_text.delta", "response.function_call_arguments.delta"):
        return event["delta"]
    if kind == "content_block_delta":
        return event["delta"].get("text", "")
    choices = event.get("choices") or [{}]
    delta = choices[0].get("delta", {})
    return choices[0].get("text", "") + (delta.get("content") or "") + "".join(c["function"]["arguments"] for c in delta.get("tool_calls", []))


def is_end(event):
    return event.get("type") in ("response.completed", "response.incomplete", "message_stop") or bool((event.get("choices") or [{}])[0].get("finish_reason"))


async def ask(address, path, body):
    """The text of a stream, or a sentence that says what went wrong."""
    reader, writer = await asyncio.open_connection(*address)
    data = json.dumps({**body, "stream": True}).encode()
    writer.write(f"POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = (await reader.read(-1)).decode()
    writer.close()
    head, _, rest = answer.partition("\r\n\r\n")
    if " 200 " not in head.splitlines()[0]:
        return f"ERROR {answer[:300]}"
    events = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
    if not any(map(is_end, events)) or any("error" in e and e["error"] for e in events):
        return f"ERROR {rest[-300:]}"
    return "".join(map(text_of, events)) + ("…" if any((e.get("choices") or [{}])[0].get("finish_reason") == "length" for e in events) else "")


def check(body, text):
    """What an independent reader sees of a constrained answer that was not cut ("…")."""
    if text.endswith("…"):
        return
    if "response_format" in body or "tools" in body:
        record = json.loads(text)
        assert set(record) == set(SCHEMA["required"]) and record["city"] in SCHEMA["properties"]["city"]["enum"], text
    if "guided_choice" in body:
        assert text in body["guided_choice"], text


async def run(address, n):
    distinct = {json.dumps(case(i)): case(i) for i in range(n)}
    expected, start = {}, time.monotonic()
    for key, (path, body) in distinct.items():
        expected[key] = await ask(address, path, body)
        assert not expected[key].startswith("ERROR"), (body, expected[key])
        if any(c in body for c in ("response_format", "guided_choice", "tools")):
            check(body, expected[key])
    print(f"{len(expected)} different requests, one by one: {time.monotonic() - start:.1f} s", flush=True)
    start = time.monotonic()
    answers = await asyncio.gather(*(ask(address, *case(i)) for i in range(n)))
    seconds, outcome = time.monotonic() - start, Counter()
    for i, text in enumerate(answers):
        right = text == expected[json.dumps(case(i))]
        outcome["right" if right else "error" if text.startswith("ERROR") else "wrong"] += 1
        if not right and sum(outcome.values()) - outcome["right"] <= 5:
            print(case(i), repr(text), repr(expected[json.dumps(case(i))]), sep="\n  ")
    constrained = sum(i % 5 == 0 for i in range(n))
    print(f"{n} streams at once ({constrained} constrained) in {seconds:.1f} s: {dict(outcome)}")
    return outcome["right"] == n


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--streams", type=int, default=500)
    options.add_argument("--device", default="cpu")
    o = options.parse_args()
    server = Server("--chat-template", str(HERE / "template.jinja"), "--device", o.device)
    host, port = server.address.split(":")
    good = asyncio.run(run((host, int(port)), o.streams))
    assert server.stop() == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
