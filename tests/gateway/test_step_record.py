"""Steps as bytes, joined and read again."""

import msgspec
import pytest

from headway.core.messages import ChoiceFinished, ErrorInfo, Finished, TokenDelta, TokenLogprobs, Usage
from headway.gateway.step_record import ChoiceTokens, StepRecord, decode_steps, encode_step, record_of

SCORED = TokenLogprobs(7, -0.5, ((7, -0.5), (8, -1.5)))
USAGE = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=4)
BATCH = (
    TokenDelta("r", 1, (7, 9), (SCORED, SCORED)),
    TokenDelta("r", 0, (5,)),
    ChoiceFinished("r", 1, "length"),
    Finished(request_id="r", usage=USAGE),
)
RECORD = StepRecord(
    2, (ChoiceTokens(1, (7, 9), (SCORED, SCORED)), ChoiceTokens(0, (5,))), ((1, "length"),), 4
)


def test_a_record_is_what_a_step_did() -> None:
    assert record_of(2, BATCH) == RECORD


def test_choices_that_were_cancelled_or_failed_are_open_still() -> None:
    error = ErrorInfo(code="engine_died", message="Gone.")
    batch = (
        ChoiceFinished("r", 0, "error"),
        ChoiceFinished("r", 1, "cancelled"),
        Finished(request_id="r", usage=Usage(prompt_tokens=1, completion_tokens=1), error=error),
    )
    assert record_of(0, batch) == StepRecord(0)


def test_records_can_be_joined() -> None:
    records = [RECORD, StepRecord(0), StepRecord(1, (ChoiceTokens(3, tuple(range(300))),))]
    assert list(decode_steps(b"".join(map(encode_step, records)))) == records
    assert list(decode_steps(b"")) == []


@pytest.mark.parametrize("cut", [1, 3, 4, 5, -1])
def test_what_was_cut_short_is_not_read(cut: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        list(decode_steps(encode_step(RECORD)[:cut]))


def test_a_token_costs_a_few_bytes() -> None:
    plain = StepRecord(0, (ChoiceTokens(0, (151_000,)),))
    assert len(encode_step(plain)) <= 20
