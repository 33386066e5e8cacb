"""What is asked of the next engine."""

from array import array

import msgspec
import pytest

from headway.core.request import Request
from headway.core.resumption import ChoiceProgress, resumed_requests
from headway.core.sampling import SamplingParams

REQUEST = Request(
    request_id="r",
    token_ids=(1, 2, 3),
    sampling=SamplingParams(seed=9),
    max_tokens=5,
    n=3,
    stop_token_ids=(7,),
    salt="tenant:a",
    arrival_ns=12,
    tenant="a",
    ttft_deadline_ns=4,
    session="talk",
)


def progress(*generated: tuple[int, ...], ended: tuple[int, ...] = ()) -> list[ChoiceProgress]:
    return [ChoiceProgress(array("i", ids), choice in ended) for choice, ids in enumerate(generated)]


def test_each_open_choice_is_asked_for_the_rest() -> None:
    first, last = resumed_requests(REQUEST, progress((4, 5), (6,), (), ended=(1,)))
    assert first == msgspec.structs.replace(
        REQUEST,
        request_id="r.0",
        token_ids=(1, 2, 3, 4, 5),
        max_tokens=3,
        n=1,
        first_choice=0,
        num_resumed=2,
        resumes=True,
        arrival_ns=None,
    )
    assert (last.request_id, last.token_ids, last.first_choice) == ("r.2", (1, 2, 3), 2)
    assert (last.max_tokens, last.num_resumed, last.resumes) == (5, 0, True)


def test_a_choice_with_all_its_tokens_is_not_asked_again() -> None:
    assert resumed_requests(REQUEST, progress((4,) * 5, (4,) * 5, (4,) * 5)) == []


def test_what_was_resumed_can_be_resumed() -> None:
    (resumed,) = resumed_requests(REQUEST, progress((4, 5), (), (6,), ended=(1, 2)))
    (again,) = resumed_requests(resumed, progress((8,)))
    (at_once,) = resumed_requests(REQUEST, progress((4, 5, 8), (), (6,), ended=(1, 2)))
    assert again == msgspec.structs.replace(at_once, request_id="r.0.0")


def test_there_is_a_progress_for_each_choice() -> None:
    with pytest.raises(ValueError, match="zip"):
        resumed_requests(REQUEST, progress((), ()))
