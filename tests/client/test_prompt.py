"""What prompts hold, question by question, in each mode."""

from typing import Any

import pytest

from headway.client.compaction import compacted, num_to_compact
from headway.client.conversation import Context, Conversation, PromptRules, begin, prompt_of
from headway.client.prompt import answered, ask, num_sliding, with_summary
from headway.client.prompt_message import Prompt
from headway.core.errors import ConfigError
from headway.wire.chat_request import ChatMessage
from headway.wire.profile import Profile
from headway.wire.tools import ToolCall

PROFILE = Profile(
    model="m", role="You review code.", domain="Payments, in Go.", window_tokens=1000, high_water=0.6
)
SYSTEM = ("system", "You review code.\n\nPayments, in Go.")


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def shown(conversation: Conversation) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in prompt_of(conversation).messages]


def talk(conversation: Conversation, *questions: str) -> Conversation:
    for question in questions:
        conversation = answered(ask(conversation, question), assistant(f"Answer to {question[:10]}"))
    return conversation


def by_chars(prompt: Prompt) -> int:
    """A token per character."""
    return sum(len(message.content or "") for message in prompt.messages)


def test_role_and_domain_stand_first_and_the_question_last() -> None:
    examples = [user("x?"), assistant("y")]
    conversation = ask(begin(PROFILE, examples=examples), "Why?")
    assert shown(conversation) == [SYSTEM, ("user", "x?"), ("assistant", "y"), ("user", "Why?")]


def test_without_role_and_domain_there_is_no_system_message() -> None:
    assert shown(ask(begin(Profile(model="m", window_tokens=9)), "Why?")) == [("user", "Why?")]


def test_a_window_nobody_knows_has_to_be_given() -> None:
    unknown = Profile(model="m")
    with pytest.raises(ConfigError, match="window_tokens"):
        begin(unknown)
    assert begin(unknown, window_tokens=50).rules.window_tokens == 50


@pytest.mark.parametrize(
    "fields",
    [{"high_water": 1.0}, {"low_water": 0.8}, {"low_water": 0}, {"window_tokens": 0}, {"last_turns": 0}],
)
def test_rules_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PromptRules(**{"window_tokens": 100, **fields})


@pytest.mark.parametrize("high_water", [0.01, 0.3, 0.75, 0.99])
def test_any_mark_of_a_profile_leaves_room_for_a_lower_one(high_water: float) -> None:
    rules = begin(Profile(model="m", window_tokens=9, high_water=high_water)).rules
    assert 0 < rules.low_water < rules.high_water


def test_cursor_and_time_stand_in_front_of_the_question_and_stay_there() -> None:
    context = Context(cursor="src/app.py:12:4", time="10:07", notes=(("Branch", "main"), ("Diff", "")))
    asked = ask(begin(PROFILE), "Why?", context)
    sent = "<context>\nCursor: src/app.py:12:4\nTime: 10:07\nBranch: main\n</context>\n\nWhy?"
    assert shown(asked)[-1] == ("user", sent)
    assert "10:07" not in str(shown(asked)[:-1])
    later = ask(answered(asked, assistant("So.")), "And?", Context(time="10:09"))
    assert shown(later)[1:3] == [("user", sent), ("assistant", "So.")]


def test_calls_and_results_belong_to_their_question() -> None:
    call = ToolCall(id="1", name="find", arguments="{}")
    calling = ChatMessage(role="assistant", content=None, tool_calls=(call,))
    result = ChatMessage(role="tool", content="3 hits", tool_call_id="1")
    conversation = answered(answered(ask(begin(PROFILE), "Where?"), calling, result), assistant("There."))
    assert len(conversation.turns) == 1
    assert prompt_of(conversation).messages[2:] == (calling, result, assistant("There."))


def test_a_question_without_an_answer_is_withdrawn_by_the_next() -> None:
    conversation = ask(ask(talk(begin(PROFILE), "One?"), "Lost?"), "Two?")
    assert [content for role, content in shown(conversation) if role == "user"] == ["One?", "Two?"]


def test_an_answer_needs_a_question() -> None:
    with pytest.raises(ConfigError, match="ask one first"):
        answered(begin(PROFILE), assistant("x"))


# --- full history, last turns


def test_full_history_is_never_dropped() -> None:
    conversation = talk(begin(PROFILE, mode="full"), *("q" * 400 for _ in range(5)))
    assert num_to_compact(conversation, by_chars) == 0
    assert len(shown(ask(conversation, "Why?"))) == 12


def test_the_last_turns_are_those_of_the_new_question_and_two_before() -> None:
    conversation = begin(PROFILE, mode="last_turns")
    for number in range(1, 6):
        assert num_sliding(conversation) == (1 if number > 3 else 0)
        conversation = ask(conversation, f"Question {number}?")
        asked = [str(content) for role, content in shown(conversation) if role == "user"]
        first = max(1, number - 2)
        assert [text[-11:] for text in asked] == [f"Question {index}?" for index in range(first, number + 1)]
        conversation = answered(conversation, assistant("Yes."))
    assert conversation.num_dropped == 2
    assert num_to_compact(conversation, lambda _: 10**9) == 0


def test_what_slid_out_is_told_of_in_the_question() -> None:
    rule = "It must fit into 40 MB."
    conversation = talk(begin(PROFILE, mode="last_turns"), f"{rule} See src/run.py", "Two?", "Three?")
    conversation = ask(with_summary(conversation, "Fitting the job into 40 MB."), "Four?")
    told = f"<context>\nEarlier: Fitting the job into 40 MB.\nRules: {rule}\nNames: src/run.py\n</context>\n\nFour?"
    assert shown(conversation)[-1] == ("user", told)
    again = ask(answered(conversation, assistant("x")), "Five?")
    assert shown(again)[-1] == (
        "user",
        "<context>\nEarlier: Fitting the job into 40 MB.\n</context>\n\nFive?",
    )


# --- compaction


def test_below_the_mark_nothing_is_compacted() -> None:
    conversation = talk(begin(PROFILE), "q" * 200, "q" * 200)
    assert num_to_compact(conversation, by_chars, "q" * 100) == 0
    assert num_to_compact(conversation, by_chars, "q" * 200) > 0


def test_one_turn_cannot_be_dropped() -> None:
    assert num_to_compact(talk(begin(PROFILE), "q" * 2000), by_chars) == 0


@pytest.mark.parametrize(("last", "kept"), [(10, 5), (100, 4), (290, 1), (900, 1)])
def test_the_latest_turns_that_fit_below_the_low_mark_stay(last: int, kept: int) -> None:
    questions = ["q" * 600, "a" * 20, "b" * 20, "c" * 20, "d" * 20, "e" * last]
    conversation = talk(
        begin(PROFILE), *questions
    )  # low mark: 300 tokens, system message and answers included
    num = num_to_compact(conversation, by_chars)
    assert len(questions) - num == kept


def test_a_compaction_leaves_a_summary_and_things_in_front_of_the_oldest_question_left() -> None:
    conversation = talk(
        begin(PROFILE), "It must fit into 40 MB. See src/run.py", "Two, in my_name?", "Three?"
    )
    done = compacted(conversation, 2, "Fitting the job.")
    told = "Summary: Fitting the job.\nRules: It must fit into 40 MB.\nNames: src/run.py, my_name"
    block = f"<earlier>\n{told}\n</earlier>\n\n"
    assert shown(done) == [SYSTEM, ("user", f"{block}Three?"), ("assistant", "Answer to Three?")]
    assert (done.num_dropped, done.summary) == (2, "Fitting the job.")
    assert shown(ask(done, "Four?"))[:3] == shown(done)


def test_without_a_summary_the_things_remain_and_the_last_summary() -> None:
    conversation = talk(begin(PROFILE), "See src/run.py", "Two?", "Three?")
    once = compacted(conversation, 1, "")
    assert shown(once)[1][1] == "<earlier>\nNames: src/run.py\n</earlier>\n\nTwo?"
    assert "Summary" not in str(shown(once))
    twice = compacted(compacted(conversation, 1, "First."), 1, "")
    assert shown(twice)[1][1] == "<earlier>\nSummary: First.\nNames: src/run.py\n</earlier>\n\nThree?"


def test_a_second_compaction_remembers_what_the_first_dropped_and_counts_no_block_twice() -> None:
    conversation = talk(begin(PROFILE), "See src/run.py", "Two?", "Three?")
    twice = compacted(compacted(conversation, 1, "A."), 1, "B.")
    assert [(one.entity.text, one.mentions) for one in twice.memory] == [("src/run.py", 1)]
    assert shown(twice)[1][1] == "<earlier>\nSummary: B.\nNames: src/run.py\n</earlier>\n\nThree?"


def test_a_question_recalls_what_it_is_about_of_all_that_was_compacted_away() -> None:
    names = " ".join(f"thing_{chr(97 + number // 26)}{chr(97 + number % 26)}x" for number in range(60))
    conversation = talk(begin(PROFILE), f"{names} retry_budget", "Two?")
    done = compacted(conversation, 1, "")
    assert "retry_budget" not in str(shown(done))  # 7 of 61 names stand in the block
    assert shown(ask(done, "Which budget?"))[-1][1] == (
        "<context>\nNames: retry_budget\n</context>\n\nWhich budget?"
    )
    assert shown(ask(done, "Why is that?"))[-1][1] == "Why is that?"


@pytest.mark.parametrize("num", [0, 2, 3])
def test_a_compaction_leaves_a_turn_and_drops_one(num: int) -> None:
    with pytest.raises(ConfigError, match="drops 1 to 1 turns of 2"):
        compacted(talk(begin(PROFILE), "One?", "Two?"), num, "")
