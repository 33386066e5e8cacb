"""Token ids of simulated prompts: as many as texts are long, alike where texts are alike."""

from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.lab.workload import Conversation
from headway.models.text_side import TextSide, open_text
from headway.simulator.prompts import ANSWER, EstimatedPrompts, TokenizedPrompts
from support.tiny_gguf import write_tiny_gguf

TALK = Conversation("multi-turn", ("x = 1\n" * 20 + "What is x?", "And what is y?"), 8)
ANSWERED = (7, 8, 9)


def test_as_many_ids_as_the_text_has_tokens_by_estimate() -> None:
    prompts = EstimatedPrompts(1000, chars_per_token=4.0)
    talk = Conversation("light", ("a" * 400,), 8)
    assert len(prompts.first(talk.request())) == 5 + 100
    assert set(prompts.first(talk.request())) <= set(range(1000))


def test_texts_with_a_beginning_in_common_have_its_ids_in_common_and_no_more() -> None:
    prompts = EstimatedPrompts(50_000)
    begin = "".join(f"value_{number} = compute({number})\n" for number in range(30))
    one, other = (
        prompts.first(Conversation("light", (begin + end,), 8).request())
        for end in ("first end", "second end")
    )
    shared = next(index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    assert abs(shared - 5 - len(begin) / 3.5) < 2
    assert len(set(one)) > 80


def test_a_later_turn_is_the_prompt_before_the_answer_and_what_is_new() -> None:
    prompts = EstimatedPrompts(1000)
    before = prompts.first(TALK.request())
    after = prompts.following(TALK.request([ANSWER]), before, ANSWERED)
    assert after[: len(before) + 3] == (*before, *ANSWERED)
    assert len(after) == len(before) + 3 + 5 + -(-len(TALK.user_turns[1]) // 3.5)


@pytest.fixture
def text(tmp_path: Path) -> TextSide:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return open_text(path)


def test_a_models_own_template_and_tokenizer_make_the_prompt_that_a_server_would(text: TextSide) -> None:
    prompts = TokenizedPrompts(text)
    before = prompts.first(TALK.request())
    assert text.chat_template is not None
    rendered = text.chat_template.render([{"role": "user", "content": TALK.user_turns[0]}])
    assert before == tuple(text.tokenizer.encode(rendered))
    spoken = text.tokenizer.encode("ok", add_bos=False)
    after = prompts.following(TALK.request([ANSWER]), before, spoken)
    whole = text.chat_template.render(
        [
            {"role": "user", "content": TALK.user_turns[0]},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": TALK.user_turns[1]},
        ]
    )
    assert after == tuple(text.tokenizer.encode(whole))


def test_a_model_without_a_chat_template_is_refused(text: TextSide) -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        TokenizedPrompts(TextSide(text.tokenizer, None, None, None))
