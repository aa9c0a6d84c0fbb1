"""Outputs that follow a grammar, judged by others: jsonschema says whether a text obeys its schema, `re` whether it
matches, the openai client makes pydantic objects of it. The server runs the demo model, which knows no JSON to speak of:
what comes out right does so by the grammar alone."""
import json
import os
import random
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Literal, Optional

import jsonschema
import openai
import pytest
from conftest import PROGRAM, ROOT
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis_jsonschema import from_schema
from openai import OpenAI
from pydantic import BaseModel, Field

sys.path.insert(0, str(ROOT / "tools"))
import random_schemas  # noqa: E402

SLOW = "dev" in str(PROGRAM)            # under sanitizers less is tried
WALK = PROGRAM.parent / "tests/grammar_walk"


@pytest.fixture(scope="module")
def client(server):
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, content="Tell me of Eva.", model="demo", **params):
    """The text of a chat and why it ended; extra_body may hold vLLM's fields."""
    choice = client.chat.completions.create(model=model, messages=[{"role": "user", "content": content}],
                                            **{"max_tokens": 300, "seed": 1, **params}).choices[0]
    return choice.message.content, choice.finish_reason


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                           "mood": {"enum": ["glad", "sad"]}}, "required": ["name", "age", "mood"], "additionalProperties": False}


@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_every_way_to_ask(client, temperature):
    text, why = ask(client, temperature=temperature, response_format=schema_format(PERSON))
    assert why == "stop"
    jsonschema.validate(json.loads(text), PERSON)
    for extra in ({"guided_json": PERSON}, {"guided_json": json.dumps(PERSON)}, {"structured_outputs": {"json": PERSON}}, {"json_schema": PERSON},
                  {"response_format": {"type": "json_object", "schema": PERSON}}):
        text, why = ask(client, temperature=temperature, extra_body=extra)
        jsonschema.validate(json.loads(text), PERSON)
    for extra in ({"guided_regex": r"[a-z]{2,5}-\d{3}(é|€)?"}, {"structured_outputs": {"regex": r"[a-z]{2,5}-\d{3}(é|€)?"}}):
        text, why = ask(client, temperature=temperature, extra_body=extra)
        assert re.fullmatch(r"[a-z]{2,5}-\d{3}(é|€)?", text) and why == "stop"
    for extra in ({"guided_choice": ["rot", "grün", "rötlich 🦁"]}, {"structured_outputs": {"choice": ["rot", "grün", "rötlich 🦁"]}}):
        text, why = ask(client, temperature=temperature, extra_body=extra)
        assert text in ("rot", "grün", "rötlich 🦁") and why == "stop"
    gbnf = 'root ::= sum\nsum ::= term ("+" term){1,3}\nterm ::= [0-9]{1,3} | "(" sum ")"'
    for extra in ({"grammar": gbnf}, {"guided_grammar": gbnf}, {"structured_outputs": {"grammar": gbnf}}):
        text, why = ask(client, temperature=temperature, extra_body=extra)
        if why == "stop":
            assert re.fullmatch(r"[\d+()]+", text) and text.count("(") == text.count(")") and "+" in text
            eval(re.sub(r"\b0+(\d)", r"\1", text))


def test_completions_and_adapters_too(client):
    for model in ("demo", "sql", "json"):
        r = client.completions.create(model=model, prompt="On March 5, 2021, Eva from Rome bought 3 lamps.", max_tokens=300,
                                      extra_body={"guided_json": PERSON}, n=2, temperature=1, seed=5)
        for choice in r.choices:
            jsonschema.validate(json.loads(choice.text), PERSON)


def test_json_object(client):
    for s in range(6):
        text, why = ask(client, temperature=1.5, seed=s, max_tokens=120, response_format={"type": "json_object"})
        assert text.startswith("{")
        if why == "stop":
            assert isinstance(json.loads(text), dict)


def test_what_is_cut_is_the_beginning_of_what_is_not(client):
    for s in range(4):
        params = {"temperature": 1.2, "seed": s, "response_format": schema_format({"type": "array", "items": PERSON, "minItems": 3, "maxItems": 4})}
        whole, why = ask(client, **params, max_tokens=500)
        assert why == "stop"
        for n in (1, 7, 20):
            part, why = ask(client, **params, max_tokens=n)
            assert why == "length" and whole.startswith(part)
    for n in range(1, 8):                       # within a character, too: the demo model spells it by bytes
        text, why = ask(client, max_tokens=n, extra_body={"guided_choice": ["🦁🦁🦁🦁"]})
        assert "🦁🦁🦁🦁".startswith(text) and "\ufffd" not in text


def test_streams_say_the_same(client):
    params = {"model": "demo", "messages": [{"role": "user", "content": "Eva"}], "temperature": 1, "seed": 3, "max_tokens": 200,
           "response_format": schema_format(PERSON)}
    whole = client.chat.completions.create(**params).choices[0].message.content
    stream = client.chat.completions.create(**params, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == whole


class Mood(str, Enum):
    glad, sad = "glad", "sad"


class Child(BaseModel):
    kind: Literal["child"]
    name: str = Field(max_length=12)


class Pet(BaseModel):
    kind: Literal["pet"]
    legs: int = Field(ge=0, le=8)


class Family(BaseModel):
    name: str = Field(max_length=15)
    mood: Mood
    income: float | None = None
    members: list[Child | Pet] = Field(max_length=3)
    oldest: Child | Pet = Field(discriminator="kind")


class Node(BaseModel):
    value: int
    next: Optional["Node"]


@pytest.mark.parametrize("model", [Family, Node])
def test_pydantic_through_the_openai_client(client, model):
    for s in range(3):
        try:
            r = client.chat.completions.parse(model="demo", messages=[{"role": "user", "content": "Go"}], response_format=model,
                                              temperature=1, seed=s, max_tokens=400)
        except openai.LengthFinishReasonError:
            continue                            # a list that did not end
        assert isinstance(r.choices[0].message.parsed, model)


def test_many_at_once_some_of_them_constrained(client):
    """Who shares a batch with a grammar says what it says alone."""
    plain = [ask(client, f"Hello {i}", temperature=1, seed=i, max_tokens=20) for i in range(12)]

    def one(i):
        if i % 2:
            text, why = ask(client, f"Number {i}", temperature=2, seed=i, response_format=schema_format(PERSON))
            assert why == "stop"
            jsonschema.validate(json.loads(text), PERSON)
        else:
            assert ask(client, f"Hello {i % 12}", temperature=1, seed=i % 12, max_tokens=20) == plain[i % 12]
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(one, range(48)))


def test_lists_of_tokens(client):
    ids = [tokens(w) for w in (" yes", " no")]
    allowed = sorted({i for word in ids for i in word})
    r = client.completions.create(model="demo", prompt="Well", max_tokens=8, temperature=1, seed=1, extra_body={"allowed_token_ids": allowed}, logprobs=0)
    assert len(r.choices[0].logprobs.tokens) == 8
    assert set(r.choices[0].logprobs.tokens) <= {client_token(client, i) for i in allowed}
    biased = client.completions.create(model="demo", prompt="Well", max_tokens=4, logit_bias={str(allowed[0]): 100}, logprobs=0)
    assert set(biased.choices[0].logprobs.tokens) == {client_token(client, allowed[0])}
    free = client.completions.create(model="demo", prompt="Hello", max_tokens=12, temperature=0).choices[0].text
    word = re.findall(r"[A-Za-z]+", free)[1]
    without = client.completions.create(model="demo", prompt="Hello", max_tokens=12, temperature=0, extra_body={"bad_words": [word]}).choices[0].text
    assert word in free and without != free and free.split(word)[0] == without[:len(free.split(word)[0])]


def tokens(text):
    """Ids of a text, as the program's own tokenizer gives them."""
    line = subprocess.run([PROGRAM, "tokenize", "--model", ROOT / "demo/model", "--no-special"], input=json.dumps(text) + "\n", capture_output=True, text=True)
    assert line.returncode == 0, line.stderr
    return json.loads(line.stdout)


def client_token(client, token):
    """How a token is shown among logprobs."""
    r = client.completions.create(model="demo", prompt="a", max_tokens=1, extra_body={"allowed_token_ids": [token]}, logprobs=0)
    return r.choices[0].logprobs.tokens[0]


def test_stop_strings(client):
    params = {"temperature": 0, "max_tokens": 30, "extra_body": {"guided_regex": "abc, def, ghi"}}
    assert ask(client, **params) == ("abc, def, ghi", "stop")
    assert ask(client, **params, stop=[", d"]) == ("abc", "stop")
    assert ask(client, stop=[", d"], temperature=0, max_tokens=30, extra_body={"guided_regex": "abc, def, ghi", "include_stop_str_in_output": True}) == ("abc, d", "stop")


def test_minimum_and_grammar(client):
    """A grammar that is complete ends the output, whatever min_tokens says."""
    assert ask(client, extra_body={"guided_choice": ["yes"], "min_tokens": 40}) == ("yes", "stop")
    text, why = ask(client, temperature=0, max_tokens=20, extra_body={"guided_regex": "[ab]*", "min_tokens": 15})
    assert len(text) >= 8


@pytest.mark.parametrize("field, value, says", [
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}, "uniqueItems"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "if": {}}}}, "if"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(?=x)"}}}, "look-around"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "http://example.org/s"}}}, "$ref"),
    ("response_format", {"type": "grammar"}, "json_schema"), ("guided_json", "{", "JSON"), ("guided_regex", "(a", "not closed"),
    ("guided_choice", [], "1 to 10000"), ("guided_grammar", "root ::= root \"a\" | \"b\"", "itself"), ("grammar", "x ::= y", "no rule"),
    ("structured_outputs", {"structural_tag": "{}"}, "structural_tag"), ("guided_regex", "a{9999}" * 40, "too large"),
    ("logit_bias", {"99999999": 1}, "vocabulary"), ("allowed_token_ids", [99999999], "vocabulary"),
    ("stop_token_ids", [2000000000], "vocabulary"), ("bad_words", [""], "bad_words"),
    ("lora", [{"id": 0, "scale": 1}], "lora"), ("prompt_logprobs", 21, "prompt_logprobs"), ("best_of", 0, "best_of"),
])
def test_errors_name_the_field(server, client, field, value, says):
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, extra_body={field: value})
    assert e.value.body["param"] == field and says in e.value.message


def test_a_killed_worker_changes_nothing(server, client):
    params = {"model": "demo", "messages": [{"role": "user", "content": "Eva"}], "temperature": 1, "seed": 11, "max_tokens": 400,
           "response_format": schema_format({"type": "array", "items": PERSON, "minItems": 5, "maxItems": 5})}
    whole = client.chat.completions.create(**params).choices[0].message.content
    text = ""
    for i, chunk in enumerate(client.chat.completions.create(**params, stream=True)):
        if i == 20:
            for pid in server.children():
                os.kill(pid, signal.SIGKILL)
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert text == whole
    jsonschema.validate(json.loads(text), {"type": "array", "items": PERSON, "minItems": 5})


def test_random_schemas_on_the_model(client):
    r = random.Random(5)
    schemas = [random_schemas.root(r) for _ in range(20 if SLOW else 60)]

    def one(numbered):
        i, s = numbered
        try:
            text, why = ask(client, temperature=[0, 1, 2][i % 3], seed=i, max_tokens=250, response_format=schema_format(s))
        except openai.BadRequestError:
            return 0                            # it names what it does not do; test_grammar.c has what
        if why == "stop":
            jsonschema.Draft202012Validator(s).validate(json.loads(text))
        return why == "stop"
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, enumerate(schemas))) > len(schemas) / 3


def test_random_schemas_at_random():
    """Texts made byte by byte, which come where no model goes."""
    r = random.Random(17)
    schemas = [random_schemas.root(r) for _ in range(150 if SLOW else 500)]
    answers = random_schemas.walk(WALK, schemas, 4, 17)
    assert sum("texts" in a for a in answers) > len(schemas) / 2
    for s, answer in zip(schemas, answers):
        assert "error" in answer or not random_schemas.judge(s, answer, jsonschema.Draft202012Validator.FORMAT_CHECKER), s


def schema_of_schemas(depth):
    """A schema that schemas obey, themselves of some depth: hypothesis-jsonschema makes no recursive things."""
    count, number, name = {"type": "integer", "minimum": 0, "maximum": 4}, {"type": "number", "minimum": -50, "maximum": 50}, {"enum": random_schemas.NAMES}
    is_schema = {"type": "object", "additionalProperties": False, "maxProperties": 5, "properties": {
        "type": {"enum": ["null", "boolean", "integer", "number", "string", "array", "object"]},
        "minimum": number, "maximum": number, "exclusiveMinimum": number, "exclusiveMaximum": number, "multipleOf": {"enum": [1, 2, 0.5, 7]},
        "minLength": count, "maxLength": count, "pattern": {"enum": random_schemas.PATTERNS}, "minItems": count, "maxItems": count,
        "minProperties": count, "maxProperties": count, "required": {"type": "array", "items": name, "maxItems": 2},
        "enum": {"type": "array", "minItems": 1, "maxItems": 3}, "const": {"type": ["null", "boolean", "number", "string", "array"]}}}
    if depth > 0:
        inner = schema_of_schemas(depth - 1)
        is_schema["properties"].update({
            "items": inner, "additionalProperties": inner, "not": inner, "allOf": {"type": "array", "items": inner, "minItems": 1, "maxItems": 2},
            "anyOf": {"type": "array", "items": inner, "minItems": 1, "maxItems": 2}, "oneOf": {"type": "array", "items": inner, "minItems": 1, "maxItems": 2},
            "properties": {"type": "object", "propertyNames": name, "additionalProperties": inner, "maxProperties": 2}})
    return is_schema


@pytest.mark.filterwarnings("ignore")
@seed(3)
@settings(max_examples=30 if SLOW else 100, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(from_schema(schema_of_schemas(1)))
def test_schemas_of_a_schema_of_schemas(s):
    """What hypothesis thinks of is compiled or refused by name, and what is made of it is valid."""
    answer = random_schemas.walk(WALK, [s], 4, 5)[0]
    assert "error" in answer or not random_schemas.judge(s, answer, None), (s, answer)
