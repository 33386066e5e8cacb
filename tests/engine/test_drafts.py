"""What is guessed, token by token, for texts that copy, edit and repeat themselves."""

from array import array
from collections.abc import Sequence

import pytest

from headway.engine.drafts import MAX_INDEXED, Drafter

SOURCE = list(range(100, 160))


def spoken(answer: Sequence[int], source: Sequence[int] = SOURCE, most: int = 8) -> tuple[Drafter, list[int]]:
    """Let a drafter follow `answer` to `source`; return it and how many of each draft were right, by position."""
    tokens = array("i", [*source, answer[0]])
    drafter = Drafter(tokens)
    right = []
    position = 1
    while position < len(answer):
        draft = drafter.propose(most).tokens
        count = 0
        while count < len(draft) and draft[count : count + 1] == tuple(
            answer[position + count : position + count + 1]
        ):
            count += 1
        right.append(count)
        count = min(count, len(answer) - position - 1)
        tokens.extend(answer[position : position + count + 1])
        drafter.settle(len(draft), count)
        position += count + 1
    return drafter, right


def steps_of(answer: Sequence[int], source: Sequence[int] = SOURCE) -> int:
    return len(spoken(answer, source)[1])


def test_nothing_is_guessed_of_a_text_without_repetition() -> None:
    assert Drafter(array("i", SOURCE)).propose(8).tokens == ()
    assert set(spoken([5, 6, 7, 8, 9])[1]) == {0}


def test_three_tokens_that_occurred_before_are_continued() -> None:
    tokens = array("i", [*SOURCE, 110, 111])
    drafter = Drafter(tokens)
    assert drafter.propose(8).tokens == ()
    tokens.append(112)
    assert drafter.propose(4).tokens == (113, 114, 115, 116)
    assert drafter.propose(1).tokens == (113,)


def test_the_latest_of_equal_places_is_continued() -> None:
    tokens = array("i", [1, 2, 3, 70, 0, 1, 2, 3, 80, 0, 1, 2, 3])
    assert Drafter(tokens).propose(1).tokens == (80,)


def test_the_longer_of_two_places_is_continued() -> None:
    tokens = array("i", [9, 1, 2, 3, 70, 0, 1, 2, 3, 80, 9, 1, 2, 3])
    assert Drafter(tokens).propose(1).tokens == (70,)


def test_a_copy_takes_a_step_for_nine_tokens() -> None:
    assert steps_of(SOURCE) == 2 + -(-(len(SOURCE) - 3) // 9)


@pytest.mark.parametrize(
    "answer",
    [
        [*SOURCE[:20], 7, *SOURCE[21:]],
        [*SOURCE[:20], 7, 8, 9, *SOURCE[21:]],
        [*SOURCE[:20], 7, *SOURCE[20:]],
        [*SOURCE[:20], 7, 8, *SOURCE[20:]],
        [*SOURCE[:20], *SOURCE[23:]],
        [*SOURCE[:20], 7, *SOURCE[30:]],
    ],
    ids=["replaced", "replaced by more", "put in", "several put in", "left out", "a line replaced"],
)
def test_copying_goes_on_after_an_edit(answer: list[int]) -> None:
    new = sum(token < 100 for token in answer)
    assert steps_of(answer) <= steps_of(SOURCE) + 2 + new


def test_what_was_replaced_once_is_expected_to_be_replaced_again() -> None:
    source = [token if token % 10 else 5 for token in SOURCE]  # a name, six times
    renamed = [new for token in source for new in ((6, 7) if token == 5 else (token,))]
    assert steps_of(renamed, source) <= steps_of(SOURCE) + 3


def test_what_is_not_replaced_again_is_believed() -> None:
    source = [token if token % 10 else 5 for token in SOURCE]
    answer = list(source)
    answer[10] = 6
    assert steps_of(answer, source) <= steps_of(SOURCE) + 3


def test_a_text_that_repeats_itself_is_continued_beyond_its_end() -> None:
    tokens = array("i", [1, 2, 3, 1, 2, 3])
    assert Drafter(tokens).propose(7).tokens == (1, 2, 3, 1, 2, 3, 1)


def test_a_draft_ends_before_a_stop_token() -> None:
    tokens = array("i", [*SOURCE, 110, 111, 112])
    assert Drafter(tokens, stop_token_ids=(115,)).propose(8).tokens == (113, 114)


def test_a_long_prompt_is_ready_some_steps_later() -> None:
    long = list(range(2 * MAX_INDEXED))
    tokens = array("i", [*long, 10, 11, 12])
    drafter = Drafter(tokens)
    assert drafter.propose(2).tokens == ()
    assert drafter.propose(2).tokens == ()
    assert drafter.propose(2).tokens == (13, 14)


def test_equal_tokens_give_equal_drafts_however_they_came() -> None:
    answer = [*SOURCE[:20], 7, *SOURCE[21:40], 8, 9, *SOURCE[40:]]
    one_by_one, at_once = array("i", SOURCE), array("i", SOURCE)
    followed, late = Drafter(one_by_one), Drafter(at_once)
    for token in answer[:45]:
        one_by_one.append(token)
        followed.propose(8)
    for token in answer[:3]:
        at_once.append(token)
        late.propose(8)
    at_once.extend(answer[3:45])
    assert late.propose(8).tokens == followed.propose(8).tokens == tuple(answer[45:53])


def test_odds_fall_with_what_was_wrong_and_rise_with_what_was_right() -> None:
    copied, _ = spoken(SOURCE[:30])
    lost, right = spoken([token for start in range(0, 50, 6) for token in (*SOURCE[start : start + 3], 7)])
    assert set(right) == {0}
    good, bad = copied.propose(8).odds, lost.propose(8).odds
    assert good.first > 0.9
    assert bad.first < 0.3
