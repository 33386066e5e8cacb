"""A model of random weights is made to call tools, by a real server with the native core, read by OpenAI's package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from support.real_server import LIMIT_S, real_server
from support.tiny_gguf import write_tiny_gguf
from support.tool_text import HERMES_SOURCE, LLAMA_SOURCE, function

pytestmark = pytest.mark.native

UNITS = ["celsius", "kelvin"]
FORECAST = function(
    "forecast",
    {
        "type": "object",
        "properties": {
            "unit": {"enum": UNITS},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "city": {"type": "string", "maxLength": 6},
        },
        "required": ["unit", "days", "city"],
        "additionalProperties": False,
    },
)
TOOLS: list[Any] = [FORECAST, function("now")]
MESSAGES: list[Any] = [{"role": "user", "content": "How will it be?"}]
NAMED: Any = {"type": "function", "function": {"name": "forecast"}}


@pytest.fixture(scope="module", params=[HERMES_SOURCE, LLAMA_SOURCE], ids=["hermes", "llama"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("tools")
    template = {"tokenizer.chat_template": request.param}
    model: Path = write_tiny_gguf(folder / "tools.gguf", context=2048, extra_metadata=template).path
    with (
        real_server(model, folder) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=LIMIT_S) as client,
    ):
        yield client


def check(arguments: str) -> None:
    values = json.loads(arguments)
    assert set(values) == {"unit", "days", "city"}
    assert values["unit"] in UNITS
    assert values["days"] in range(1, 10)
    assert len(values["city"]) <= 6


@pytest.mark.parametrize("seed", range(3))
def test_a_named_call_is_made_and_matches_its_schema_whole_and_streamed(
    client: openai.OpenAI, seed: int
) -> None:
    fields: Any = {"model": "tools", "messages": MESSAGES, "tools": TOOLS, "tool_choice": NAMED, "seed": seed}
    (choice,) = client.chat.completions.create(**fields).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "forecast"
    check(call.function.arguments)
    with client.chat.completions.stream(**fields) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls
    assert streamed is not None
    assert streamed[0].function.arguments == call.function.arguments


def test_required_calls_in_every_choice(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tools",
        messages=MESSAGES,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        n=3,
        seed=1,
    )
    for choice in answer.choices:
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or []
        assert call.type == "function"
        if call.function.name == "forecast":
            check(call.function.arguments)
        else:
            assert (call.function.name, call.function.arguments) == ("now", "{}")
