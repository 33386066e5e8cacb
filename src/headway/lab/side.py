"""One side of a comparison: `URL`, or `URL,model=NAME,api-key-env=VAR` where two sides differ in no more than that."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint, parse_endpoint

_NAMES = ("model", "api-key-env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Who is asked. `model` None: the first that the endpoint lists."""

    endpoint: Endpoint
    model: str | None = None


def parse_side(text: str, environment: Mapping[str, str] = os.environ) -> Side:
    """Read a side; the key is what an environment variable holds. Raises ConfigError."""
    url, *settings = text.split(",")
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name.strip() not in _NAMES or not equals or not value.strip():
            raise ConfigError(f"A side is written as URL,model=NAME,api-key-env=VAR, not with {setting!r}.")
        if name.strip() in given:
            raise ConfigError(f"{text} says {name.strip()} twice.")
        given[name.strip()] = value.strip()
    variable = given.get("api-key-env")
    key = None if variable is None else environment.get(variable)
    if variable is not None and not key:
        raise ConfigError(f"The environment variable {variable} is not set.")
    return Side(endpoint=parse_endpoint(url, key), model=given.get("model"))
