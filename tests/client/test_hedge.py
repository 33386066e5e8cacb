from headway.client.hedge import Hedges
from headway.client.policy import Hedging


def test_nothing_is_usual_before_there_are_samples() -> None:
    hedges = Hedges(Hedging(share=1, min_samples=20), 2)
    hedges.called()
    for ttft_ns in range(1, 20):
        hedges.answered(0, ttft_ns)
    assert hedges.after_ns() == (None, None)
    hedges.answered(0, 20)
    assert hedges.after_ns() == (19, None)  # the 95th of a hundred, of twenty the 19th


def test_old_samples_make_room() -> None:
    hedges = Hedges(Hedging(share=1), 1)
    hedges.called()
    for ttft_ns in [1000] * 200 + [10] * 200:
        hedges.answered(0, ttft_ns)
    assert hedges.after_ns() == (10,)


def test_hedges_are_at_most_a_share_of_calls_however_slow_everything_is() -> None:
    hedges = Hedges(Hedging(share=0.05, min_samples=1), 1)
    hedges.answered(0, 1)
    num_hedges = 0
    for num_calls in range(1, 1001):
        hedges.called()
        if hedges.after_ns() != (None,):
            hedges.hedged()
            num_hedges += 1
        assert num_hedges <= 0.05 * num_calls + 1e-9
    assert num_hedges >= 49
