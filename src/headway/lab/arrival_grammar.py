"""Reads the forms of `--arrival`; what they mean is said in `arrivals` and `ladder`.

    closed:USERS[,USERS…]               several: one after another
    constant:RATE | poisson:RATE | gamma:RATE:SHAPE
    stages:STAGE,STAGE,…[,PROCESS]      STAGE is RATE@TIME or RATE-RATE@TIME, PROCESS constant, poisson or gamma:SHAPE
    ladder[:NAME=NUMBER,…]              NAME is a field of LadderRules

RATE is in requests per second, TIME has the unit ms, s, m or h (none: seconds).
"""

import re
from dataclasses import fields
from typing import Any

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.arrivals import Closed, ClosedSteps, Constant, Gamma, Open, Poisson, Process, Stage, steady
from headway.lab.ladder_rules import LadderRules

Arrival = Closed | ClosedSteps | Open | LadderRules

_NUMBER = r"(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_STAGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?@({_NUMBER})(ms|s|m|h)?")
_UNITS_NS = {"ms": NS_PER_MS, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S, None: NS_PER_S}
_COUNTS = {field.name for field in fields(LadderRules) if field.type is int}
_NAMES = [field.name for field in fields(LadderRules)]


def parse_arrival(text: str) -> Arrival:
    """Return the load that `text` describes; raises ConfigError with a sentence that says what to write."""
    form, _, rest = text.partition(":")
    match form:
        case "closed":
            return _closed(rest, text)
        case "constant":
            return _steady(rest, Constant(), "constant:RATE in requests per second, as in constant:5", text)
        case "poisson":
            return _steady(rest, Poisson(), "poisson:RATE in requests per second, as in poisson:5", text)
        case "gamma":
            hint = "gamma:RATE:SHAPE with the rate in requests per second, as in gamma:5:0.5"
            rate, _, shape = rest.partition(":")
            return _steady(rate, Gamma(_number(shape, hint, text)), hint, text)
        case "stages":
            return _stages(rest, text)
        case "ladder":
            return _ladder(rest) if ":" in text else LadderRules()
        case _:
            raise ConfigError(
                "Write --arrival as closed:4, constant:5, poisson:5, gamma:5:0.5, stages:5@30s,5-20@60s or ladder; "
                f"got {text!r}."
            )


def _closed(rest: str, text: str) -> Closed | ClosedSteps:
    hint = (
        "closed:USERS with a whole number of users, as in closed:4, or several in turn, as in closed:1,2,4,8"
    )
    steps = tuple(Closed(_count(users, hint, text)) for users in rest.split(","))
    return ClosedSteps(steps) if len(steps) > 1 else steps[0]


def _unreadable(hint: str, text: str) -> ConfigError:
    return ConfigError(f"Write --arrival {hint}; got {text!r}.")


def _count(digits: str, hint: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", digits):
        raise _unreadable(hint, text)
    return int(digits)


def _number(number: str, hint: str, text: str) -> float:
    if not re.fullmatch(_NUMBER, number):
        raise _unreadable(hint, text)
    return float(number)


def _steady(rate: str, process: Process, hint: str, text: str) -> Open:
    number = _number(rate, hint, text)
    if not number:
        raise ConfigError(f"A rate must be above 0 requests per second; got {text!r}.")
    return steady(number, process)


def _stages(rest: str, text: str) -> Open:
    hint = (
        "stages:RATE@TIME or RATE-RATE@TIME for a ramp, any number of them with commas between, and last, if not "
        "poisson, the process, as in stages:5@30s,5-20@60s,constant"
    )
    *parts, last = rest.split(",")
    process = _process(last, hint, text)
    if process is None:
        parts.append(last)
    stages = []
    for part in parts:
        match = _STAGE.fullmatch(part)
        if match is None:
            raise _unreadable(hint, text)
        from_rate, to_rate, time, unit = match.groups()
        duration_ns = round(float(time) * _UNITS_NS[unit])
        stages.append(Stage(float(from_rate), float(to_rate or from_rate), duration_ns))
    return Open(tuple(stages), process or Poisson())


def _process(part: str, hint: str, text: str) -> Process | None:
    """Return the process that `part` names, or None if it names none."""
    name, _, shape = part.partition(":")
    match name:
        case "constant" if part == name:
            return Constant()
        case "poisson" if part == name:
            return Poisson()
        case "gamma":
            return Gamma(_number(shape, hint, text))
        case _:
            return None


def _ladder(rest: str) -> LadderRules:
    given: dict[str, Any] = {}  # the fields' types, which LadderRules checks
    for part in rest.split(","):
        name, _, number = part.partition("=")
        hint = f"ladder:NAME=NUMBER with NAME one of {', '.join(_NAMES)}, each once, as in ladder:target_rate=200"
        if name not in _NAMES or name in given:
            raise _unreadable(hint, f"ladder:{rest}")
        read = _count if name in _COUNTS else _number
        given[name] = read(number, hint, f"ladder:{rest}")
    return LadderRules(**given)
