"""Runs drawn from known models: what decode and prefill follow is found, kinds and chunks do not mislead."""

from collections.abc import Sequence

import numpy as np
import pytest

from headway.lab.concurrency import InFlight
from headway.lab.deltas import TokenUsage
from headway.lab.distribution import Floats
from headway.lab.exchange import Answer, Exchange, Stamps, StreamEvent
from headway.lab.latency_model import decode_json, decode_model, prefill_json, prefill_model
from headway.lab.prompt_line import prompt_line

MS = 1_000_000


def request(
    start_ms: float,
    ttft_ms: float,
    itl_ms: Sequence[float] | Floats = (),
    *,
    each: int = 1,
    prompt: int | None = None,
    cached: int | None = None,
    turn: int = 1,
    label: str = "light",
) -> Exchange:
    """`itl_ms` are the gaps between chunks of `each` tokens."""
    start = round(start_ms * MS)
    at_ns = start + np.rint((ttft_ms + np.concatenate([[0.0], np.cumsum(itl_ms)])) * MS).astype(int)
    events = tuple(
        StreamEvent(at_ns=at, kind="content", num_chars=4 * each, num_tokens=each) for at in at_ns.tolist()
    )
    return Exchange(
        stamps=Stamps(
            intended_ns=start,
            dispatched_ns=start,
            written_ns=start,
            first_byte_ns=start,
            ended_ns=events[-1].at_ns,
        ),
        answer=Answer(
            events=events,
            usage=TokenUsage(
                prompt_tokens=prompt, completion_tokens=each * len(events), cached_tokens=cached
            ),
        ),
        turn=turn,
        label=label,
    )


@pytest.mark.parametrize("each", [1, 4])
def test_decode_is_told_by_arrivals_whatever_their_tokens(each: int) -> None:
    rng = np.random.default_rng(0)
    run = [request(1_000 * n, 20, each * rng.lognormal(1.2, 0.2, 30), each=each) for n in range(60)]
    found = decode_model(run, InFlight(run))
    assert found is not None
    assert (found.model.fits[0].family, found.model.n) == ("lognormal", 1_800)
    assert found.model.fits[0].parameters["mu"] == pytest.approx(1.2, abs=0.03)
    assert found.model.fits[0].parameters["sigma"] == pytest.approx(0.2, abs=0.02)
    assert found.model.verdict == "fits"
    assert found.tokens_per_arrival == each
    assert found.in_flight is None  # one at a time


def test_steps_that_share_others_prompts_are_a_second_part() -> None:
    rng = np.random.default_rng(1)
    steps = np.where(rng.random(3_000) < 0.9, rng.lognormal(1.1, 0.1, 3_000), rng.lognormal(3.0, 0.2, 3_000))
    run = [request(10_000 * n, 20, own) for n, own in enumerate(steps.reshape(60, 50))]
    told = decode_json(decode_model(run, InFlight(run)))
    assert told is not None
    assert (told["best"], told["verdict"]) == ("two lognormals", "fits")
    families = told["families"]
    assert isinstance(families, dict)
    assert families["two lognormals"]["share"] == pytest.approx(0.9, abs=0.02)
    assert set(families) == {"lognormal", "gamma", "weibull", "two lognormals"}


def test_each_further_request_costs_what_it_costs() -> None:
    """k at a time, k from 1 to 8: a token takes 3 ms and 0.4 ms more for each further request."""
    rng = np.random.default_rng(2)
    run, at_ms = [], 0.0
    for users in np.tile(np.arange(1, 9), 4).tolist():
        run += [request(at_ms, 0.0, (3 + 0.4 * users) * rng.lognormal(0, 0.05, 40)) for _ in range(users)]
        at_ms += 1_000
    found = decode_model(run, InFlight(run))
    assert found is not None
    assert found.in_flight is not None
    assert found.in_flight.slope == pytest.approx(0.4, abs=0.03)
    assert found.in_flight.n == len(run)


def test_prefill_is_told_within_its_kind() -> None:
    """Two lengths, ten turns, cold and cached: each kind scatters alike around a mean of its own."""
    rng = np.random.default_rng(3)
    kinds = [("context:64", 1, 0, 10.0), ("context:4096", 1, 0, 900.0), ("light", 2, 50, 4.0)]
    run = [
        request(10 * n, median * rng.lognormal(0, 0.15), turn=turn, label=label, prompt=100, cached=cached)
        for label, turn, cached, median in kinds
        for n in range(100)
    ]
    found = prefill_model([*run, request(0, 1e6, label="alone")])
    assert found is not None
    assert (found.num_kinds, found.model.n, found.model.fits[0].family) == (3, 300, "lognormal")
    assert found.model.fits[0].parameters["sigma"] == pytest.approx(0.15, abs=0.02)


def test_prefill_of_one_kind_is_in_milliseconds() -> None:
    rng = np.random.default_rng(5)
    found = prefill_model([request(10 * n, 85 * rng.lognormal(0, 0.14)) for n in range(200)])
    assert found is not None
    best = found.model.fits[0]
    assert (found.num_kinds, best.family) == (1, "lognormal")
    assert np.exp(best.parameters["mu"]) == pytest.approx(85, abs=3)
    assert best.parameters["sigma"] == pytest.approx(0.14, abs=0.02)


def test_the_line_of_prompts_leaves_cached_tokens_out() -> None:
    rng = np.random.default_rng(4)
    run = []
    for n in range(60):
        prompt, cached = int(rng.integers(500, 4_000)), int(rng.choice([0, 480]))
        run.append(request(10 * n, 12 + 0.023 * (prompt - cached), prompt=prompt, cached=cached))
    line = prompt_line([*run, request(0, 5)])  # of the last usage tells no prompt
    assert line is not None
    assert (line.base_ms, line.ms_per_1k) == pytest.approx((12, 23))
    assert line.n == 60
    alike = [request(10 * n, 12 + 0.5 * n, prompt=500 + n) for n in range(60)]
    assert prompt_line(alike) is None


def test_too_little_has_no_model() -> None:
    few = [request(10 * n, 5, [1.0, 1.1]) for n in range(9)]
    assert decode_model(few, InFlight(few)) is None
    assert prefill_model(few) is None
    assert decode_model([], InFlight(few)) is None
    assert prompt_line(few) is None
    assert (decode_json(None), prefill_json(None)) == (None, None)
