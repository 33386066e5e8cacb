import pytest

from headway.core.errors import ConfigError
from headway.lab.slo import Slo, limits_ms, meets, parse_slo
from support.scripted_stream import DONE, chat, play, tokens, usage


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=480ms,itl=50ms", Slo(ttft_ns=480_000_000, itl_ns=50_000_000)),
        ("e2e=2s", Slo(e2e_ns=2_000_000_000)),
        ("tpot=800us", Slo(tpot_ns=800_000)),
        (" ttft = 0.5s , e2e=1.25s ", Slo(ttft_ns=500_000_000, e2e_ns=1_250_000_000)),
    ],
)
def test_limits_are_read_with_their_units(text: str, slo: Slo) -> None:
    assert parse_slo(text) == slo


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "written as"),
        ("ttft", "written as"),
        ("ttft=", "written as"),
        ("ttft=480", "written as"),
        ("ttft=480 ms x", "written as"),
        ("ttft=-1ms", "written as"),
        ("ttft=1e3ms", "written as"),
        ("ttft=nanms", "written as"),
        ("ttft=٤ms", "written as"),
        ("ttft=5min", "units: ms, s, us"),
        ("ttft=1ms,", "written as"),
        ("latency=1ms", "one of ttft, itl, tpot, e2e, not latency"),
        ("ttft=1ms,ttft=2ms", "limits ttft twice"),
        ("ttft=0ms", "less than a nanosecond"),
        ("ttft=99999999999999ms", "written as"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_slo(text)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("ttft=100ms", True),
        ("ttft=99ms", False),
        ("itl=12ms", True),
        ("itl=11ms", False),
        ("tpot=12ms", True),
        ("tpot=11ms", False),
        ("e2e=220ms", True),
        ("e2e=219ms", False),
        ("ttft=100ms,itl=11ms", False),
        ("ttft=100ms,itl=12ms,e2e=220ms,tpot=12ms", True),
    ],
)
def test_a_limit_may_be_reached(text: str, met: bool) -> None:
    exchange = play(*tokens(100, 12, 11), (221, chat("length") + usage(11) + DONE))
    assert meets(parse_slo(text), exchange) is met


def test_itl_is_the_mean_over_the_tokens_of_a_request() -> None:
    exchange = play((100, chat(content="a")), (110, chat(content="a")), (150, chat(content="a") + DONE))
    assert meets(parse_slo("itl=25ms"), exchange)
    assert not meets(parse_slo("itl=24ms"), exchange)


def test_one_token_breaks_no_limit_between_tokens() -> None:
    assert meets(parse_slo("itl=1us,tpot=1us,ttft=1s"), play((100, chat(content="a") + DONE)))


def test_a_failure_meets_nothing_however_fast_it_was() -> None:
    slo = parse_slo("ttft=1s")
    assert not meets(slo, play(status=429))
    assert not meets(slo, play(*tokens(1, 1, 3), ending="closed"))
    assert not meets(Slo(), play(status=500))


def test_limits_are_told_in_milliseconds() -> None:
    assert limits_ms(parse_slo("ttft=0.48s,itl=50us")) == {"ttft": 480, "itl": 0.05}
    assert limits_ms(Slo()) == {}
