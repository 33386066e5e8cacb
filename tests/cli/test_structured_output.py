"""Structured output from the wire to the demo model, over real HTTP, read by OpenAI's own package and checked by others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import openai
import pydantic
import pytest

from support.real_server import RealServer, is_alive, real_server

pytestmark = [pytest.mark.native, pytest.mark.model]

MESSAGES: list[Any] = [
    {"role": "user", "content": "Describe a person named Ada, who is 36 and likes maths, as JSON."}
]
FLAT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
NESTED = {
    "$defs": {"tag": {"enum": ["maths", "music", None, 7]}},
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "born": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 3},
        "home": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tag"}]},
    },
    "required": ["id", "born", "tags", "home"],
    "additionalProperties": False,
}
LIST = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 10},
    "minItems": 3,
    "maxItems": 4,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(Path("smollm2"), tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: RealServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def answer(client: openai.OpenAI, *, seed: int = 1, temperature: float = 0.8, **fields: Any) -> str:
    whole = client.chat.completions.create(
        model="smollm2", messages=MESSAGES, max_tokens=120, seed=seed, temperature=temperature, **fields
    )
    assert whole.choices[0].finish_reason == "stop"
    return whole.choices[0].message.content or ""


def schema(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": value, "strict": True}}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wanted", [FLAT, NESTED, LIST], ids=["flat", "nested", "list"])
def test_answers_validate_at_any_temperature(
    client: openai.OpenAI, wanted: dict[str, Any], temperature: float
) -> None:
    for seed in range(2):
        text = answer(client, seed=seed, temperature=temperature, response_format=schema(wanted))
        jsonschema_rs.validator_for(wanted, validate_formats=True).validate(json.loads(text))
        assert "\n" not in text
        assert not re.search(r"  |^ | $", re.sub(r'"(?:[^"\\]|\\.)*"', '""', text))


class Pet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    kind: Literal["cat", "dog"]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int
    pet: Pet | None


def test_openais_package_parses_into_pydantics_models(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model="smollm2", messages=MESSAGES, response_format=Person, max_tokens=120, seed=2
    )
    assert isinstance(parsed.choices[0].message.parsed, Person)
    with client.chat.completions.stream(
        model="smollm2", messages=MESSAGES, response_format=Person, max_tokens=120, seed=2
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == parsed.choices[0].message.parsed


def test_any_object(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    for seed in range(4):
        whole = create(
            model="smollm2",
            messages=MESSAGES,
            max_tokens=60,
            seed=seed,
            response_format={"type": "json_object"},
        )
        text = whole.choices[0].message.content
        # A model of this size need not come to an end; a string that is open ends the beginning of an object.
        if whole.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            with pytest.raises(json.JSONDecodeError, match=r"Unterminated|delimiter|Expecting"):
                json.loads(text)
            assert text.startswith("{")


def test_every_form_of_vllms(client: openai.OpenAI) -> None:
    for body, pattern in (
        ({"guided_regex": r"[A-Z][a-z]{2,7} is [0-9]{1,3}\."}, r"[A-Z][a-z]{2,7} is [0-9]{1,3}\."),
        ({"guided_choice": ["yes", "no (not yet)"]}, r"yes|no \(not yet\)"),
        ({"guided_grammar": 'root ::= "x=" d d?\nd ::= [0-9]'}, "x=[0-9]{1,2}"),
        ({"guided_grammar": 'start: "x=" /[0-9]{1,2}/'}, "x=[0-9]{1,2}"),
        ({"structured_outputs": {"choice": ["a", "ab"]}}, "ab?"),
        ({"structured_outputs": {"json": {"enum": [1, "b"]}}}, '1|"b"'),
    ):
        for seed in range(2):
            assert re.fullmatch(pattern, answer(client, extra_body=body, seed=seed)), body


def test_text_completions_and_choices_too(client: openai.OpenAI) -> None:
    whole = client.completions.create(
        model="smollm2", prompt="Numbers:", n=3, max_tokens=40, seed=1, extra_body={"guided_json": LIST}
    )
    texts = [choice.text for choice in whole.choices]
    assert len(set(texts)) > 1
    for text in texts:
        jsonschema_rs.validate(LIST, json.loads(text))


def test_an_answer_that_is_cut_is_a_beginning(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    whole = create(model="smollm2", messages=MESSAGES, max_tokens=5, response_format=schema(NESTED))
    assert whole.choices[0].finish_reason == "length"
    assert (whole.choices[0].message.content or "").startswith('{"id":')


def test_without_end_it_goes_on_while_the_grammar_does(client: openai.OpenAI) -> None:
    body = {"guided_regex": "a{1,9}", "ignore_eos": True}
    assert answer(client, extra_body=body) == "a" * 9


def test_the_same_request_alone_and_among_others_says_the_same(client: openai.OpenAI) -> None:
    alone = answer(client, seed=5, response_format=schema(NESTED))
    free = client.completions.create(model="smollm2", prompt="def f", max_tokens=30, seed=5, stream=True)
    texts = []
    started = next(iter(free))
    texts.append(answer(client, seed=5, response_format=schema(NESTED)))
    rest = "".join(chunk.choices[0].text for chunk in (started, *free) if chunk.choices)
    assert texts == [alone]
    again = client.completions.create(model="smollm2", prompt="def f", max_tokens=30, seed=5)
    assert rest == again.choices[0].text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": schema({"not": {"type": "string"}})}, "response_format.json_schema.schema"),
        ({"extra_body": {"guided_regex": "(a"}}, "guided_regex"),
        ({"extra_body": {"guided_grammar": "start: NOWHERE"}}, "guided_grammar"),
        ({"extra_body": {"guided_grammar": "root ::= nowhere"}}, "guided_grammar"),
    ],
    ids=["schema", "regex", "lark", "gbnf"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_enforced_is_a_400(
    client: openai.OpenAI, fields: dict[str, Any], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, stream=stream, **fields)
    assert caught.value.param == param


def test_a_grammar_that_breaks_the_compiler_breaks_nothing_else(
    server: RealServer, client: openai.OpenAI
) -> None:
    chain = "\n".join(f"A{index}: A{index + 1}" for index in range(8_000))
    deep = f'start: A0\n{chain}\nA8000: "x"'
    with pytest.raises(openai.BadRequestError, match="nested too deeply"):
        answer(client, extra_body={"guided_grammar": deep})
    assert is_alive(server.engine_pid)
    assert answer(client, extra_body={"guided_choice": ["still here"]}) == "still here"
    assert server.is_idle()
