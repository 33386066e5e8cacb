"""Every option, metric and environment variable is documented, and the documents name no other."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from headway.cli.main import build_parser
from headway.core.events import EngineStateChanged
from headway.obs.metrics import Metrics

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
SOURCES = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # argparse offers no public way to list options
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from options(subparser)


def documented(pattern: str) -> set[str]:
    return set(re.findall(pattern, REFERENCE))


def test_every_option_is_documented_and_no_other() -> None:
    assert documented(r"--[a-z][a-z-]+") == set(options(build_parser()))


def test_every_metric_is_documented_and_no_other() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready"))
    names = set(re.findall(r"^# TYPE (headway_[a-z_]+)", metrics.page()[1].decode(), re.MULTILINE))
    assert names
    assert documented(r"`(headway_[a-z_]+)`") == names


def test_every_environment_variable_is_documented_and_no_other() -> None:
    variables = set(re.findall(r'"(HEADWAY_[A-Z_]+)"', SOURCES))
    assert documented(r"HEADWAY_[A-Z_]+") == variables | {"HEADWAY_REQUIRE_ALL"}
