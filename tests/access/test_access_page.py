"""What docs/access.md shows is what the code takes."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from headway.access.config import AccessConfig, JwtConfig, TokensConfig, parse_access
from headway.cli.main import build_parser

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "access.md").read_text()
TABLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^headway (.*?)(?: \|.*)?$", PAGE, re.MULTILINE)


def test_the_page_shows_something() -> None:
    assert len(TABLES) == 3
    assert len(COMMANDS) == 6


@pytest.mark.parametrize("text", TABLES)
def test_every_access_file_is_one(text: str) -> None:
    assert parse_access(tomllib.loads(text)) != AccessConfig()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one(command: str) -> None:
    build_parser().parse_args(shlex.split(command))


def test_the_reference_has_every_key_of_the_access_file_and_no_other() -> None:
    section = (DOCS / "reference.md").read_text().split("### Access file\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\|(.*?)\|", section, re.MULTILINE)
    keys = {f"tokens.{name}" for name in TokensConfig.__struct_encode_fields__}
    keys |= {f"jwt.{name}" for name in JwtConfig.__struct_encode_fields__}
    assert set(re.findall(r"`((?:tokens|jwt)\.\w+)`", "".join(rows))) == keys
