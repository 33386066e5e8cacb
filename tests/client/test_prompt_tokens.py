import pytest

from headway.client.prompt_message import Prompt
from headway.client.prompt_tokens import CHARS_PER_TOKEN, TokenEstimate
from headway.wire.chat_request import ChatMessage
from headway.wire.tools import ToolCall


def prompt(*contents: str, tools_json: str = "") -> Prompt:
    return Prompt(tuple(ChatMessage(role="user", content=content) for content in contents), tools_json)


def test_it_counts_texts_calls_and_tools() -> None:
    assert TokenEstimate(2.0)(prompt("x" * 100, "y" * 60)) == 80 + 12
    assert TokenEstimate(2.0)(prompt("x" * 100, tools_json="z" * 50)) == 75 + 6
    call = ToolCall(id="1", name="find", arguments="x" * 96)
    calling = Prompt((ChatMessage(role="assistant", content=None, tool_calls=(call,)),))
    assert TokenEstimate(2.0)(calling) == 50 + 6


@pytest.mark.parametrize("num_tokens", [120, 400, 999])
def test_it_learns_the_servers_count(num_tokens: int) -> None:
    asked = prompt("x" * 1200, "y" * 300)
    learnt = TokenEstimate().learnt(asked, num_tokens)
    assert learnt(asked) == num_tokens
    assert learnt(prompt("x" * 3000)) == pytest.approx(2 * (num_tokens - 12), abs=8)


def test_a_short_prompt_teaches_nothing() -> None:
    assert TokenEstimate().learnt(prompt("x" * 100), 90).chars_per_token == CHARS_PER_TOKEN
    assert TokenEstimate().learnt(prompt("x" * 1000), 3).chars_per_token == CHARS_PER_TOKEN
