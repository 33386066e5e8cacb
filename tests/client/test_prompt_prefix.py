"""Each prompt begins with the one before it, token by token, outside compactions: with real templates and tokenizers, by the
gateway's own way from a request's bytes to token ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.client.compaction import compacted, num_to_compact
from headway.client.conversation import Context, Conversation, PromptMode, begin, prompt_of
from headway.client.prompt import answered, ask
from headway.client.prompt_message import Prompt
from headway.gateway.tool_prompt import render
from headway.gateway.tool_support import find_tool_support
from headway.models.chat_template import ChatTemplate
from headway.models.fetch import resolve_model
from headway.models.text_side import open_text
from headway.models.tokenizer import Tokenizer
from headway.wire.chat_request import ChatMessage, parse_chat
from headway.wire.profile import Profile
from headway.wire.tools import ToolCall
from support.tool_text import HERMES_SOURCE, NOW, WEATHER

DATA = Path(__file__).parents[1] / "data"
SMOLLM2 = (DATA / "smollm2" / "chat_template.jinja").read_text()
STRICT = (  # as Gemma's: the system message joins the first question, roles alternate, texts are trimmed
    "{% set system = '' %}{% if messages[0].role == 'system' %}{% set system = messages[0].content ~ '\n\n' %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ system if loop.first else '' }}{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES = (
    HERMES_SOURCE.replace("<{{ m.role }}>", "<|im_start|>{{ m.role }}\n")
    .replace("</>", "<|im_end|>\n")
    .replace(
        "<assistant>",
        "{% if add_generation_prompt is not defined or add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    )
)
PROFILE = Profile(model="m", role="You review code.", domain="Payments.", window_tokens=100_000)


@dataclass(frozen=True, slots=True)
class Text:
    """What makes tokens of a prompt."""

    template: ChatTemplate
    tokenizer: Tokenizer

    def ids(self, prompt: Prompt) -> Sequence[int]:
        call = parse_chat(msgspec.json.encode(prompt.fields()))
        support = find_tool_support(self.template, self.tokenizer) if call.tools else None
        return self.tokenizer.encode(render(self.template, call.messages, call.tools, support))

    def num_suffix(self, prompt: Prompt) -> int:
        """How many tokens at the end only say that an answer begins."""
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        with_it, without = (
            self.tokenizer.encode(self.template.render(messages, add_generation_prompt=asked))
            for asked in (True, False)
        )
        assert list(with_it[: len(without)]) == list(without)
        return len(with_it) - len(without)


def small(source: str) -> Text:
    return Text(ChatTemplate(source), open_text_of("hf_qwen2"))


def open_text_of(name: str) -> Tokenizer:
    return open_text(DATA / "tokenizers" / name).tokenizer


def demo() -> Text:
    text = open_text(resolve_model("smollm2"))
    assert text.chat_template is not None
    assert text.chat_template.source == SMOLLM2
    return Text(text.chat_template, text.tokenizer)


TEXTS: dict[str, Callable[[], Text]] = {
    "smollm2": lambda: small(SMOLLM2),
    "strict": lambda: small(STRICT),
    "demo": demo,
}
NAMED = [pytest.param(name, marks=[pytest.mark.model] if name == "demo" else []) for name in TEXTS]


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        "  spaces  ",
        "\n\nlines\n",
        "```python\ndef f_x(): pass\n```",
        "<|im_end|>",
        "It must fit. See src/a.py.",
        "",
    ]
)
CONTEXTS = st.builds(Context, cursor=WORDS, time=WORDS)
TURNS = st.lists(st.tuples(WORDS, WORDS, CONTEXTS), min_size=2, max_size=6)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_prompt_begins_with_the_one_before_it(name: str, mode: PromptMode) -> None:
    text = TEXTS[name]()

    @settings(max_examples=40, deadline=None)
    @given(TURNS)
    def check(turns: list[tuple[str, str, Context]]) -> None:
        conversation = begin(PROFILE, mode=mode)
        before: Sequence[int] = ()
        num_suffix = 0
        for question, answer, context in turns:
            conversation = ask(conversation, question, context)
            now = text.ids(prompt_of(conversation))
            assert common(before, now) >= len(before) - num_suffix
            before, num_suffix = now, text.num_suffix(prompt_of(conversation))
            conversation = answered(conversation, ChatMessage(role="assistant", content=answer))

    check()


def long_talk(text: Text, window_tokens: int, num_turns: int) -> tuple[list[Sequence[int]], list[int]]:
    """Return the prompts of a conversation, and the numbers of those before which it was compacted."""
    conversation = begin(replace_window(window_tokens))
    prompts: list[Sequence[int]] = []
    compactions: list[int] = []
    for number in range(num_turns):
        question = (
            f"Question {number}: why does handler_{number} in src/part_{number}.py fail? " + "It fails. " * 12
        )
        if num := num_to_compact(conversation, lambda prompt: len(text.ids(prompt)), question):
            conversation = compacted(conversation, num, f"Handlers up to {number} fail.")
            compactions.append(number)
        conversation = ask(conversation, question, Context(time=f"10:{number:02}"))
        prompts.append(text.ids(prompt_of(conversation)))
        conversation = answered(conversation, ChatMessage(role="assistant", content="Because. " * 12))
    return prompts, compactions


def replace_window(window_tokens: int) -> Profile:
    return msgspec.structs.replace(PROFILE, window_tokens=window_tokens)


@pytest.mark.parametrize("name", NAMED)
def test_only_compactions_shorten_the_prefix_and_they_are_rare_steps(name: str) -> None:
    text = TEXTS[name]()
    num_turns = 40
    window_tokens = 3000 if name == "demo" else 6000  # of 800 tokens' vocabulary
    prompts, compactions = long_talk(text, window_tokens, num_turns)
    stable = common(prompts[0], text.ids(prompt_of(ask(begin(PROFILE), "?"))))
    assert compactions
    assert len(compactions) <= num_turns // 5
    for number in range(1, num_turns):
        before, now = prompts[number - 1], prompts[number]
        if number in compactions:
            assert stable <= common(before, now) < len(before)  # system message and domain stay
            assert len(now) < 0.65 * len(before)
        else:
            assert common(before, now) >= len(before) - 3
        assert len(now) <= 0.8 * window_tokens


def test_a_sliding_window_shares_little_more_than_its_beginning() -> None:
    text = TEXTS["smollm2"]()
    conversation: Conversation = begin(PROFILE, mode="last_turns")
    before: Sequence[int] = ()
    for number in range(6):
        conversation = ask(conversation, f"Question {number}? " + "It fails. " * 20)
        now = text.ids(prompt_of(conversation))
        if number >= 3:
            assert common(before, now) < 0.2 * len(before)
        before = now
        conversation = answered(conversation, ChatMessage(role="assistant", content="Because. " * 20))


def test_tools_and_calls_keep_the_prefix_as_well() -> None:
    text = small(HERMES)
    call = ToolCall(id="1", name="get_weather", arguments='{"city": "Paris"}')
    messages = [
        ChatMessage(role="assistant", content=None, tool_calls=(call,)),
        ChatMessage(role="tool", content="Rain.", tool_call_id="1"),
        ChatMessage(role="assistant", content="It rains."),
    ]
    conversation = ask(begin(PROFILE, tools=[WEATHER, NOW]), "Paris?")
    prompts = [text.ids(prompt_of(conversation))]
    for message in messages:
        conversation = answered(conversation, message)
        if message.role != "assistant" or not message.tool_calls:
            prompts.append(text.ids(prompt_of(conversation)))
    prompts.append(text.ids(prompt_of(ask(conversation, "And London?"))))
    other = ask(begin(PROFILE, tools=[NOW, WEATHER]), "Rome?")
    for before, now in pairwise(prompts):
        assert common(before, now) >= len(before) - 12
    tools_end = common(prompts[0], text.ids(prompt_of(other)))
    assert "get_weather" in text.tokenizer.decode(prompts[0][:tools_end], skip_special=False)
