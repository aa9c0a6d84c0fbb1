#!/usr/bin/env python3
"""Random JSON Schemas, texts of their grammars, and what an independent validator says of these.

    tools/random_schemas.py [--walk build/tests/grammar_walk] [--count 2000] [--texts 6] [--seed 1] [--url http://127.0.0.1:8000 --model demo]

grammar_walk makes texts at random, byte by byte; each must be valid JSON and obey its schema by the jsonschema package.
With --url a server's model makes them, one of each schema, at temperatures 0, 1 and 2; each is asked for once more with half of its
tokens, and what is cut off so must be a beginning of the whole.
Refusals are counted by what they name; anything else is printed and fails. Needs jsonschema and its format checkers."""
import argparse
import collections
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import jsonschema

NAMES = ["a", "b", "name", "id", "x y", 'q"q', "é", "tags", "value", "type"]
PATTERNS = ["^a+b?$", "x", "^[A-Z]{2,4}-\\d+$", "^(foo|bar)", "é$", "^.{2,3}$", "[0-9]", "^[^a]*$", "^$", '^"?\\\\?$', "[\\u4e00-\\u4e02]{2}"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri", "duration", "json-pointer", "custom-thing"]


def scalar(r):
    return r.choice([None, True, False, 0, 1, -3, 2.5, 1e-3, "", "a", "ab", "foo", 'q"\\', "é", "\u0000\n", 12345678901])


def number_keywords(r, s, integer):
    pick = (lambda: r.randint(-20, 20)) if r.random() < 0.6 else (lambda: round(r.uniform(-50, 50), r.randint(0, 3)))
    if r.random() < 0.5:
        s[r.choice(["minimum", "exclusiveMinimum"])] = pick()
    if r.random() < 0.5:
        s[r.choice(["maximum", "exclusiveMaximum"])] = pick()
    if r.random() < 0.2:
        s["multipleOf"] = r.choice([1, 2, 3, 7, 10, 25] if integer else [0.5, 0.25, 2, 1])


def string_keywords(r, s):
    if r.random() < 0.3:
        s["minLength"] = r.randint(0, 4)
    if r.random() < 0.3:
        s["maxLength"] = s.get("minLength", 0) + r.randint(0, 6)
    if r.random() < 0.25:
        s["pattern"] = r.choice(PATTERNS)
    elif r.random() < 0.2:
        s["format"] = r.choice(FORMATS)


def array_keywords(r, s, depth):
    if r.random() < 0.8:
        s["items"] = schema(r, depth - 1)
    if r.random() < 0.25:
        s["prefixItems"] = [schema(r, depth - 1) for _ in range(r.randint(1, 3))]
    if r.random() < 0.4:
        s["minItems"] = r.randint(0, 3)
    if r.random() < 0.4:
        s["maxItems"] = s.get("minItems", 0) + r.randint(0, 3)
    if r.random() < 0.05:
        s["uniqueItems"] = True


def object_keywords(r, s, depth):
    names = r.sample(NAMES, r.randint(0, 4))
    if names:
        s["properties"] = {n: schema(r, depth - 1) for n in names}
    if r.random() < 0.6 and names:
        s["required"] = r.sample(names, r.randint(0, len(names)))
        if r.random() < 0.1:
            s["required"].append("extra")
    if r.random() < 0.5:
        s["additionalProperties"] = r.choice([True, False, False, schema(r, depth - 1)])
    if r.random() < 0.12:
        s["patternProperties"] = {p: schema(r, depth - 1) for p in r.sample(PATTERNS, r.randint(1, 2))}
    if r.random() < 0.08:
        s["propertyNames"] = {"pattern": r.choice(PATTERNS)} if r.random() < 0.5 else {"maxLength": 4}
    if r.random() < 0.12:
        s["minProperties"] = r.randint(0, 2)
    if r.random() < 0.12:
        s["maxProperties"] = s.get("minProperties", 0) + r.randint(0, 3)


def typed(r, depth):
    kinds = ["null", "boolean", "integer", "number", "string", "string"] + (["array", "object", "object"] if depth > 0 else [])
    kind = r.choice(kinds)
    s = {"type": kind}
    if kind in ("integer", "number"):
        number_keywords(r, s, kind == "integer")
    elif kind == "string":
        string_keywords(r, s)
    elif kind == "array":
        array_keywords(r, s, depth)
    elif kind == "object":
        object_keywords(r, s, depth)
    if r.random() < 0.07:
        s["type"] = [kind, r.choice([k for k in ("null", "boolean", "integer") if k != kind])]
    return s


def schema(r, depth):
    p = r.random()
    if p < 0.62 or depth <= 0:
        return typed(r, depth)
    if p < 0.70:
        return {"enum": [scalar(r) for _ in range(r.randint(1, 4))]}
    if p < 0.74:
        return {"const": scalar(r) if r.random() < 0.7 else {"k": [scalar(r)]}}
    if p < 0.82:
        return {"anyOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
    if p < 0.88:
        return {"oneOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
    if p < 0.93:
        return {"allOf": [typed(r, depth - 1), {**typed(r, depth - 1)}]}
    if p < 0.95:
        return {**typed(r, depth), "not": r.choice([{"const": scalar(r)}, {"type": "integer"}, {"enum": [scalar(r), scalar(r)]}, {"type": "string", "pattern": r.choice(PATTERNS)}])}
    if p < 0.98:
        return {"$ref": r.choice(["#/$defs/one", "#/$defs/two"])}
    return r.choice([True, {}])


def root(r):
    s = schema(r, 3)
    if isinstance(s, dict):
        s = {**s, "$defs": {"one": typed(r, 1), "two": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/two"}, {"type": "null"}]}, "v": typed(r, 0)}, "required": ["v"]}}}
    return s


def judge(s, answer, formats):
    """What is wrong with an answer, or None."""
    validator = jsonschema.Draft202012Validator(s, format_checker=formats)
    for text in answer["texts"]:
        try:
            value = json.loads(text)
        except ValueError as e:
            return f"not JSON: {text!r}: {e}"
        errors = list(validator.iter_errors(value))
        if errors:
            return f"not valid: {text!r}: {errors[0].message[:300]}"
    return None


def walk(binary, schemas, texts, seed):
    lines = "".join(json.dumps({"kind": "schema", "text": json.dumps(s)}) + "\n" for s in schemas)
    out = subprocess.run([binary, str(texts), str(seed)], input=lines, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.split("\n") if line]


def complete(url, model, s, number, max_tokens):
    """(text, finish_reason, tokens) of a server's answer to a schema; the error's message where it refuses."""
    body = {"model": model, "messages": [{"role": "user", "content": "Eva from Rome"}], "temperature": number % 3, "seed": number, "max_tokens": max_tokens,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=300) as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as e:
        assert e.code == 400, e.read()
        return json.load(e)["error"]["message"]
    return told["choices"][0]["message"]["content"] or "", told["choices"][0]["finish_reason"], told["usage"]["completion_tokens"]


def serve_one(url, model, s, number):
    """An answer as walk() gives it, of a server's model."""
    whole = complete(url, model, s, number, 300)
    if isinstance(whole, str):
        return {"error": whole, "seconds": 0}
    text, why, n = whole
    begun = complete(url, model, s, number, max(1, n // 2))[0]
    wrong = [] if text.startswith(begun) else [f"{begun!r} is not the beginning of {text!r}"]
    return {"texts": [text] if why == "stop" else [], "cut": [begun], "wrong": wrong, "seconds": 0}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--walk", default="build/tests/grammar_walk")
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--texts", type=int, default=6)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--url")
    p.add_argument("--model", default="demo")
    a = p.parse_args()
    r = random.Random(a.seed)
    schemas = [root(r) for _ in range(a.count)]
    refused, wrong, checked, cut, slowest = collections.Counter(), 0, 0, 0, 0.0
    if a.url:
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda numbered: serve_one(a.url, a.model, numbered[1], numbered[0]), enumerate(schemas)))
    else:
        answers = walk(a.walk, schemas, a.texts, a.seed)
    for s, answer in zip(schemas, answers):
        slowest = max(slowest, answer["seconds"])
        if "error" in answer:
            refused[answer["error"][:60]] += 1
            continue
        bad = judge(s, answer, jsonschema.Draft202012Validator.FORMAT_CHECKER) or ", ".join(answer.get("wrong", []))
        checked += len(answer["texts"])
        cut += len(answer["cut"])
        if bad:
            wrong += 1
            print(json.dumps(s, ensure_ascii=False), "\n  ", bad)
    print(f"{a.count} schemas: {sum(refused.values())} refused, {checked} texts checked, {cut} cut off, {wrong} wrong; slowest {slowest * 1e3:.0f} ms")
    for why, n in refused.most_common():
        print(f"  {n:5d}  {why}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
