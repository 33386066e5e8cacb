import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatMessage, parse_chat
from headway.wire.summary import MAX_SUMMARY_CHARS, SUMMARY_REQUEST, asked_for_summary, cut_summary
from headway.wire.summary_request import parse_summary

USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "Hello!"}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def body(**fields: object) -> bytes:
    return msgspec.json.encode({"messages": [USER, ASSISTANT], **fields})


def test_the_prompt_is_the_chats_and_one_message_more() -> None:
    chat, summary = parse_chat(body(tools=[TOOL])), parse_summary(body(tools=[TOOL]))
    assert summary.messages == (*chat.messages, ChatMessage(role="user", content=SUMMARY_REQUEST))
    assert (summary.tools, summary.tool_choice) == (chat.tools, chat.tool_choice)


def test_it_is_short_greedy_and_not_streamed() -> None:
    options = parse_summary(body()).options
    assert (options.sampling.temperature, options.n, options.stream) == (0, 1, False)
    assert options.max_tokens == 64
    assert options.stop == ("\n",)


def test_the_template_gets_the_same_further_names() -> None:
    assert parse_summary(body(chat_template_kwargs={"enable_thinking": False})).template_kwargs == {
        "enable_thinking": False
    }
    with pytest.raises(InvalidRequest, match="may not name `messages`"):
        parse_summary(body(chat_template_kwargs={"messages": 1}))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 1}, "temperature"),
        ({"stream": True}, "stream"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"tools": [{"type": "x"}]}, "tools[0].type"),
    ],
)
def test_what_decides_no_prompt_is_refused(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_summary(body(**fields))
    assert caught.value.param == param


def test_behind_a_question_the_request_joins_it_so_that_roles_alternate() -> None:
    question = ChatMessage(role="user", content="Why?", name="ada")
    (asked,) = asked_for_summary([question])
    assert asked == ChatMessage(role="user", content=f"Why?\n\n{SUMMARY_REQUEST}", name="ada")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  Parser\tdone,\n tests open. ", "Parser done, tests open."),
        ("<think>\nWhat did we do?\n</think>\n\nParser done.", "Parser done."),
        ("<think>\nWhat did we do? The user", ""),
        ("", ""),
        ("word " * 26, "word " * 24 + "word…"),
        ("x" * 200, "x" * 127 + "…"),
        ("字" * 129, "字" * 127 + "…"),
        ("x" * 128, "x" * 128),
        ("one, two", "one, two"),
        ("a" * 126 + ", b", "a" * 126 + "…"),
    ],
)
def test_an_answer_becomes_one_line(text: str, line: str) -> None:
    assert cut_summary(text) == line


@given(st.text(), st.integers(2, 200))
def test_a_line_is_never_longer_than_it_may_be_and_stays_what_it_is(text: str, max_chars: int) -> None:
    line = cut_summary(text, max_chars)
    assert len(line) <= max_chars
    assert line == " ".join(line.split())
    assert cut_summary(line, max_chars) == line
    assert MAX_SUMMARY_CHARS == 128
