"""A conversation with a server: what it is asked for, and when."""

import logging
from dataclasses import dataclass, field

import pytest

from headway.client.conversation import Context, PromptMode
from headway.client.dialogue import Dialogue
from headway.client.prompt_message import Prompt
from headway.core.errors import InvalidRequest, Unavailable
from headway.wire.profile import Profile
from support.tool_text import NOW

pytestmark = pytest.mark.anyio

PROFILE = Profile(model="m", role="You review code.", window_tokens=400)


@dataclass
class FakeServer:
    """Sums up with the number of the summary."""

    down: bool = False
    asked: list[Prompt] = field(default_factory=list)

    async def profile(self) -> Profile:
        return PROFILE

    async def summary(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        if self.down:
            raise Unavailable("The server is busy.")
        return f"Summary {len(self.asked)}"


def by_chars(prompt: Prompt) -> int:
    return sum(len(message.content or "") for message in prompt.messages)


async def opened(server: FakeServer, mode: PromptMode = "incremental") -> Dialogue:
    return await Dialogue.open(server, mode=mode, count=by_chars)


async def turn(dialogue: Dialogue, question: str) -> Prompt:
    prompt = await dialogue.ask(question)
    dialogue.answered({"role": "assistant", "content": "Yes."})
    return prompt


async def test_it_begins_by_the_servers_profile() -> None:
    dialogue = await opened(FakeServer())
    prompt = await dialogue.ask("Why?", Context(cursor="a.py:1"))
    assert [message["content"] for message in prompt.fields()["messages"]] == [
        "You review code.",
        "<context>\nCursor: a.py:1\n</context>\n\nWhy?",
    ]


async def test_examples_and_tools_stand_before_the_first_question() -> None:
    examples: list[dict[str, object]] = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2", "refusal": None},
    ]
    dialogue = await Dialogue.open(FakeServer(), tools=[NOW], examples=examples)
    fields = (await dialogue.ask("2+2?")).fields()
    assert [message["content"] for message in fields["messages"]] == ["You review code.", "1+1?", "2", "2+2?"]
    assert fields["tools"] == [NOW]


async def test_beyond_the_mark_it_is_compacted_once_on_the_prefix_that_is_cached() -> None:
    server = FakeServer()
    dialogue = await opened(server)
    sent = [await turn(dialogue, "q" * 100) for _ in range(2)]
    assert server.asked == []
    compacted = await turn(dialogue, "q" * 100)
    (asked,) = server.asked
    assert asked.messages[: len(sent[-1].messages)] == sent[-1].messages  # and its answer, nothing else
    assert asked.messages[len(sent[-1].messages) :][0].content == "Yes."
    assert str(compacted.messages[1].content).startswith("<earlier>\nSummary: Summary 1\n</earlier>\n\nqqq")
    assert len(compacted.messages) == 4
    await turn(dialogue, "q")
    assert len(server.asked) == 1


async def test_prepared_while_the_user_reads_the_next_question_waits_for_nothing() -> None:
    server = FakeServer()
    dialogue = await opened(server)
    for _ in range(2):
        await dialogue.ask("q" * 100)
        dialogue.answered({"role": "assistant", "content": "y" * 50})
    assert server.asked == []
    assert await dialogue.prepare()  # the last answer has passed the mark
    assert len(server.asked) == 1
    assert not await dialogue.prepare()
    await turn(dialogue, "q")
    assert len(server.asked) == 1


async def test_a_sliding_window_is_summed_up_once_a_question() -> None:
    server = FakeServer()
    dialogue = await opened(server, "last_turns")
    for _ in range(3):
        await turn(dialogue, "Why?")
    assert server.asked == []
    assert await dialogue.prepare()
    assert not await dialogue.prepare()
    prompt = await turn(dialogue, "Four?")
    assert len(server.asked) == 1
    assert prompt.messages[-1].content == "<context>\nEarlier: Summary 1\n</context>\n\nFour?"
    await turn(dialogue, "Five?")
    assert len(server.asked) == 2


@pytest.mark.parametrize("mode", ["incremental", "last_turns"])
async def test_a_server_that_makes_no_summary_costs_no_conversation(
    mode: PromptMode, caplog: pytest.LogCaptureFixture
) -> None:
    dialogue = await opened(FakeServer(down=True), mode)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            prompt = await turn(dialogue, f"See src/part_{number}.py. " + "q" * 80)
    assert "no summary of the conversation: The server is busy." in caplog.text
    text = str(prompt.fields())
    assert "Summary" not in text
    assert "src/part_0.py" in text


async def test_usage_corrects_the_estimate() -> None:
    server = FakeServer()
    dialogue = await Dialogue.open(server)
    for number in range(2):
        await dialogue.ask("q" * 300)
        dialogue.answered({"role": "assistant", "content": "Yes."}, prompt_tokens=20 + 20 * number)
    assert not await dialogue.prepare()  # 3 characters a token would be more than 200 of 400
    await dialogue.ask("q" * 300)
    dialogue.answered({"role": "assistant", "content": "Yes."}, prompt_tokens=900)
    assert await dialogue.prepare()


async def test_what_is_no_message_changes_nothing() -> None:
    dialogue = await opened(FakeServer())
    await dialogue.ask("Why?")
    before = dialogue.conversation
    with pytest.raises(InvalidRequest):
        dialogue.answered({"role": "robot"}, prompt_tokens=3)
    assert dialogue.conversation == before
