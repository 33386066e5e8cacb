import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.arrival_grammar import Arrival, parse_arrival
from headway.lab.arrivals import Closed, ClosedSteps, Constant, Gamma, Open, Poisson, Stage, steady
from headway.lab.ladder_rules import LadderRules

READ: dict[str, Arrival] = {
    "closed:4": Closed(4),
    "closed:1,2,4,8": ClosedSteps((Closed(1), Closed(2), Closed(4), Closed(8))),
    "constant:5": steady(5, Constant()),
    "poisson:0.5": steady(0.5, Poisson()),
    "gamma:5:0.5": steady(5, Gamma(0.5)),
    "stages:5@30s": Open((Stage(5, 5, 30 * NS_PER_S),), Poisson()),
    "stages:5@30s,5-20@60s,poisson": Open(
        (Stage(5, 5, 30 * NS_PER_S), Stage(5, 20, 60 * NS_PER_S)), Poisson()
    ),
    "stages:5@500ms,20-0@2m,constant": Open(
        (Stage(5, 5, 500 * NS_PER_MS), Stage(20, 0, 120 * NS_PER_S)), Constant()
    ),
    "stages:0@1.5,.5-2@1h,gamma:4": Open(
        (Stage(0, 0, 1500 * NS_PER_MS), Stage(0.5, 2, 3600 * NS_PER_S)), Gamma(4)
    ),
    "ladder": LadderRules(),
    "ladder:target_rate=200,holds=0": LadderRules(target_rate=200, holds=0),
}


@pytest.mark.parametrize("text", READ)
def test_forms_are_read(text: str) -> None:
    assert parse_arrival(text) == READ[text]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Write --arrival as closed:4"),
        ("uniform:5", "got 'uniform:5'"),
        ("Poisson:5", "poisson:5"),
        ("closed", "as in closed:4"),
        ("closed:", "as in closed:4"),
        ("closed:1.5", "whole number of users"),
        ("closed:-1", "whole number of users"),
        ("closed:0", "one user at least"),
        ("closed:1,", "as in closed:1,2,4,8"),
        ("closed:1,,2", "as in closed:1,2,4,8"),
        ("closed:1, 2", "as in closed:1,2,4,8"),
        ("closed:1,0", "one user at least"),
        ("constant:", "as in constant:5"),
        ("constant:5:2", "as in constant:5"),
        ("constant:0", "above 0"),
        ("poisson:inf", "as in poisson:5"),
        ("poisson:nan", "as in poisson:5"),
        ("poisson:1e3", "as in poisson:5"),
        ("poisson:٣", "as in poisson:5"),
        ("poisson: 5", "as in poisson:5"),
        ("poisson:5\n", "as in poisson:5"),
        ("poisson:0.0", "above 0"),
        ("poisson:99999999", "0 or from 0.000001 to 1000000"),
        ("poisson:.000000001", "0 or from 0.000001 to 1000000"),
        ("gamma:5", "as in gamma:5:0.5"),
        ("gamma:5:0.5:1", "as in gamma:5:0.5"),
        ("gamma:5:0", "shape of gamma arrivals"),
        ("gamma:0:1", "above 0"),
        ("stages", "as in stages:5@30s"),
        ("stages:", "as in stages:5@30s"),
        ("stages:poisson", "One stage at least"),
        ("stages:5", "RATE@TIME"),
        ("stages:5@30x", "RATE@TIME"),
        ("stages:5@30s,", "RATE@TIME"),
        ("stages:5@30s,poisson,5@30s", "RATE@TIME"),
        ("stages:5@30s,poisson:5", "RATE@TIME"),
        ("stages:5@30s,gamma", "RATE@TIME"),
        ("stages:-5@30s", "RATE@TIME"),
        ("stages:0@30s", "One stage at least"),
        ("stages:5@0s", "longer than 0"),
        ("ladder:", "ladder:target_rate=200"),
        ("ladder:target=5", "one of start_rate, target_rate, floor_rate"),
        ("ladder:cut=0.5,cut=0.6", "each once"),
        ("ladder:holds=1.5", "ladder:target_rate=200"),
        ("ladder:target_rate=5", "floor_rate ≤ start_rate ≤ target_rate"),
    ],
)
def test_what_cannot_be_read_is_answered_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_arrival(text)
    assert says in raised.value.message
    assert "\n" not in raised.value.message


@given(
    st.text(alphabet="closedntapigmr0123456789.:@-,=_ hx\n")
    | st.sampled_from([*READ]).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.characters()).map(
            lambda edit: text[: edit[0]] + edit[1] + text[edit[0] + 1 :]
        )
    )
)
def test_nothing_but_a_config_error_is_ever_raised(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_arrival(text), Closed | ClosedSteps | Open | LadderRules)
