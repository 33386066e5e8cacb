"""Every option, metric and environment variable is documented, and the documents name no other."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from headway.cli.main import build_parser
from headway.core import errors
from headway.core.events import EngineStateChanged
from headway.flow.rate import MAX_RISK
from headway.flow.signals import RULES
from headway.obs.metrics import Metrics
from headway.runner.shapes import SHAPES
from headway.wire.chat_request import ChatFields
from headway.wire.completion_request import CompletionFields
from headway.wire.service_headers import PARAMETERS

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


def section(heading: str) -> str:
    return REFERENCE.split(heading + "\n", 1)[1].split("\n#", 1)[0]


def test_every_option_is_documented_and_no_other() -> None:
    assert documented(r"--[a-z][a-z-]+") == set(options(build_parser()))


def commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices


def test_every_command_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| (`headway .*?) \|", section("## Commands"), re.MULTILINE)
    names = {" ".join(re.findall(r"[a-z]+", row.split("`")[1])[1:]) for row in rows}
    several = (
        {"token"},
        {f"token {verb}" for verb in ("list", "revoke", "show")},
    )  # in one row with `token create`
    assert names == set(commands(build_parser())).difference(*several)
    readme = (ROOT / "README.md").read_text()
    assert {name for name in names if f"`{name.split()[0]}`" not in readme} == set()


def test_every_address_is_documented_and_no_other() -> None:
    app = (ROOT / "src" / "headway" / "gateway" / "app.py").read_text()
    routes = {re.sub(r"{.*?}", "{}", path) for path in re.findall(r'"(/[a-z][^"]*)"', app)}
    rows = re.findall(r"^\|(.*?)\|", section("## HTTP"), re.MULTILINE)
    addresses = re.findall(r"`(?:GET|POST|DELETE|WS) (/[^`]*)`", "".join(rows))
    assert {re.sub(r"{.*?}", "{}", path) for path in addresses} == routes


def test_the_readme_leads_to_every_guide() -> None:
    readme = (ROOT / "README.md").read_text()
    guides = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {guide for guide in guides if f"]({guide})" not in readme} == set()


def test_every_shape_is_documented() -> None:
    assert {name for name in SHAPES if f"`{name}`" not in section("### `perf`")} == set()


def test_every_metric_is_documented_and_no_other() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready"))
    name = "(?:headway|api_token)_[a-z_]+"
    names = set(re.findall(f"^# TYPE ({name})", metrics.page()[1].decode(), re.MULTILINE))
    assert names
    assert documented(f"`({name})`") == names
    guide = re.findall(rf"\b({name})\b", (ROOT / "docs" / "observability.md").read_text())
    assert {re.sub("_(bucket|count|sum)$", "", each) for each in guide} - names == set()


def test_every_signal_is_documented_as_it_counts_and_no_other() -> None:
    guide = (ROOT / "docs" / "flow-control.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*?\| (\d+) min \| ([\d.]+) \| (\d+) \|$", guide, re.MULTILINE)
    told = {name: (int(minutes) * 60, float(weight), int(most)) for name, minutes, weight, most in rows}
    assert told == {
        name: (rule.half_life_s, rule.weight, round(MAX_RISK / rule.weight)) for name, rule in RULES.items()
    }


def test_every_request_field_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\|(.*?)\|", section("### Request fields"), re.MULTILINE)
    fields = {*ChatFields.__struct_fields__, *CompletionFields.__struct_fields__}
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == fields


def test_every_service_header_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| `(x-[a-z-]+)` \|", section("### Service headers"), re.MULTILINE)
    assert set(rows) == {parameter["name"] for parameter in PARAMETERS}


def test_every_error_of_a_request_is_documented_with_its_status_and_no_other() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("### Errors"), re.MULTILINE)
    classes = [
        cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.HeadwayError)
    ]
    of_the_command = {errors.ModelFileError, errors.ConfigError, errors.FetchError}
    answers = [cls for cls in classes if cls not in of_the_command]
    assert {(int(status), code) for status, code in rows} == {(cls.status, cls.code) for cls in answers}


def test_every_environment_variable_is_documented_and_no_other() -> None:
    variables = set(re.findall(r'"(HEADWAY_[A-Z_]+)"', SOURCES))
    assert documented(r"HEADWAY_[A-Z_]+") == variables | {"HEADWAY_REQUIRE_ALL"}


def test_the_architecture_names_every_source_file_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "src" / "headway"
    files = {
        str(path.relative_to(package)) for path in package.glob("*/**/*.py") if path.name != "__init__.py"
    }
    named = set(re.findall(r"(?<![\w/])(?!tests/|scripts/)(?:[a-z]+/)+[a-z_]+\.py", text))
    assert files - named == set()
    assert named - files == set()


def test_files_that_documents_point_to_exist() -> None:
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for path in re.findall(
            r"\b((?:tests|native|benchmarks|scripts|docs)/[\w/.-]*\w)", document.read_text()
        ):
            assert (ROOT / path).exists(), f"{document.name} names {path}"
