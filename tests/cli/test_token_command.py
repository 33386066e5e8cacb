"""`headway token`: what it prints where, what it refuses, and that no token shows up anywhere but once."""

import argparse
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.expiry import expiry
from headway.cli.main import main
from headway.cli.token_report import described, standing_of

TOKEN = re.compile(r"hw_[A-Za-z0-9_-]{43}\n")
NOW_S = 1_800_000_000


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "headway"


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        assert main(["token", *arguments]) == 0
        return self._capsys.readouterr().out

    def both(self, *arguments: str) -> tuple[str, str]:
        assert main(["token", *arguments]) == 0
        out, err = self._capsys.readouterr()
        return str(out), str(err)

    def refused(self, *arguments: str) -> str:
        try:
            code = main(["token", *arguments])
        except SystemExit as ended:
            code = int(str(ended.code))
        assert code == 2
        out, err = self._capsys.readouterr()
        assert out == ""
        return str(err)

    def ids(self) -> list[str]:
        return [token["id"] for token in json.loads(self("list", "--json"))]


@pytest.fixture
def token(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_token_is_printed_once_and_alone(token: Shell, state: Path) -> None:
    out, err = token.both("create", "--user", "ada")
    assert TOKEN.fullmatch(out)
    assert out.strip() not in err
    [token_id] = token.ids()
    assert token_id in err
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in state.iterdir()} == {
        "tokens.key": 0o600,
        "tokens.sqlite3": 0o600,
    }
    for output in (
        token("list"),
        token("list", "--json"),
        token("show", token_id),
        token("show", token_id, "--json"),
    ):
        assert out.strip() not in output
    assert out.strip().encode() not in b"".join(file.read_bytes() for file in state.iterdir())


def test_a_token_that_could_not_be_shown_is_revoked(token: Shell, state: Path) -> None:
    del state
    with open("/dev/full", "w") as full:
        arguments = [sys.executable, "-m", "headway.cli.main", "token", "create", "--user", "ada"]
        run = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 2
    assert b"Nothing more can be written" in run.stderr
    [made] = json.loads(token("list", "--json"))
    assert made["state"] == "revoked"


def test_everything_that_a_token_may_have(token: Shell) -> None:
    token(
        *(
            "create",
            "--user",
            "ada",
            "--tenant",
            "acme",
            "--class",
            "high",
            "--kind",
            "admin",
            "--note",
            "her editor",
        ),
        *(
            "--requests-per-s",
            "2.5",
            "--tokens-per-min",
            "9000",
            "--max-concurrent",
            "3",
            "--expires",
            "2999-01-02",
        ),
    )
    [found] = json.loads(token("list", "--json"))
    assert found["created"].endswith("Z")
    assert {key: found[key] for key in found if key not in ("id", "created")} == {
        "tenant": "acme",
        "user": "ada",
        "class": "high",
        "kind": "admin",
        "requests_per_s": 2.5,
        "tokens_per_min": 9000,
        "max_concurrent": 3,
        "note": "her editor",
        "state": "valid",
        "expires": "2999-01-02T00:00:00Z",
        "revoked": None,
    }
    assert json.loads(token("show", found["id"], "--json")) == found | {"standing": None}


def test_the_table(token: Shell) -> None:
    token(
        "create",
        "--user",
        "ada",
        "--requests-per-s",
        "20",
        "--tokens-per-min",
        "90000",
        "--expires",
        "2999-01-02",
    )
    token("revoke", *token.ids())
    token("create", "--user", "bob", "--note", "n" * 40)
    head, *lines = token("list").splitlines()
    cells = {line.split()[2]: re.split(r" {2,}", line)[1:] for line in lines}  # both may be of one second
    assert re.split(r" {2,}", head)[1:9] == [
        *("TENANT", "USER", "CLASS", "KIND", "REQUESTS/S", "TOKENS/MIN", "AT ONCE", "STATE")
    ]
    assert cells["ada"][:8] == ["-", "ada", "normal", "user", "20", "90,000", "-", "revoked"]
    assert cells["ada"][9:] == ["2999-01-02"]
    assert cells["bob"][:8] == ["-", "bob", "normal", "user", "-", "-", "-", "valid"]
    assert cells["bob"][9:] == ["-", f"{'n' * 29}…"]


def test_what_show_tells_people(token: Shell) -> None:
    token("create", "--user", "ada")
    told = token("show", token.ids()[0])
    assert re.search(r"^tenant: +the default tenant$", told, re.MULTILINE)
    assert re.search(r"^max_concurrent: +the server's$", told, re.MULTILINE)
    assert re.search(r"^expires: +never$", told, re.MULTILINE)
    assert told.endswith("standing: no server has kept any\n")


@pytest.mark.parametrize(
    ("standing", "told"),
    [
        (
            {
                "risk": 1.25,
                "requests_per_s": 62.51234567,
                "why": [{"signal": "burst", "words": "bursts: 2.0 of late"}, "x\n"],
            },
            [
                *("standing:", "  risk:            1.25", "  requests_per_s:  62.5", "  why:"),
                *("    bursts: 2.0 of late", '    "x\\n"'),
            ],
        ),
        (
            {"quotas": {"requests": {"limit": 100, "reset_ns": 5}, "tokens": None}, "x": {"y\n": 1}, "z": {}},
            [
                "standing:",
                "  quotas:  requests: limit 100, reset_ns 5",
                '  x:       "y\\n" 1',
                "  z:       none",
            ],
        ),
        ({"why": []}, ["standing:", "  why: nothing"]),
        ({}, ["standing:"]),
        ("\x1b[2J", ['standing: "\\u001b[2J"']),
        (None, ["standing: no server has kept any"]),
    ],
)
def test_how_a_user_stands_is_told_by_what_the_server_kept(standing: object, told: list[str]) -> None:
    assert list(described("jwt_000000000001", None, standing, NOW_S))[1:] == told


def test_a_standing_that_cannot_be_read_is_none() -> None:
    assert standing_of(b"{") is None
    assert standing_of(b'{"risk": 1}') == {"risk": 1}


def test_a_revoked_token_says_since_when(token: Shell) -> None:
    token("create", "--user", "ada")
    out, err = token.both("revoke", token.ids()[0])
    assert (out, err) == ("", f"{token.ids()[0]} of ada is revoked.\n")
    assert re.search(r"^revoked: +\d{4}-\d\d-\d\dT", token("show", token.ids()[0]), re.MULTILINE)


def test_without_a_store_there_is_nothing_to_list(token: Shell, state: Path) -> None:
    assert "it is not there" in token.refused("list")
    assert not state.exists()


@pytest.mark.parametrize("verb", ["show", "revoke"])
def test_a_name_that_nobody_has_is_told(token: Shell, verb: str) -> None:
    token("create", "--user", "ada")
    assert "There is no tok_000000000000 in" in token.refused(verb, "tok_000000000000")


def test_of_a_jwt_there_is_nothing_to_revoke_and_nothing_to_show_unless_it_was_slowed(token: Shell) -> None:
    token("create", "--user", "ada")
    assert "A JWT cannot be revoked" in token.refused("revoke", "jwt_000000000000")
    assert "it was not slowed down" in token.refused("show", "jwt_000000000000")


@pytest.mark.parametrize("verb", ["show", "revoke"])
def test_a_token_given_in_the_place_of_its_name_is_not_repeated(token: Shell, verb: str) -> None:
    made = token("create", "--user", "ada").strip()
    assert made not in token.refused(verb, made)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say what to do"),
        (["frob"], "unrecognized arguments"),
        (["create"], "--user"),
        (["create", "--user", ""], "`--user` must be"),
        (["create", "--user", "a b"], "`--user` must be"),
        (["create", "--user", "a\nb"], "`--user` must be"),
        (["create", "--user", "u" * 129], "`--user` must be"),
        (["create", "--user", "a", "--tenant", "é"], "`--tenant` must be"),
        (["create", "--user", "a", "--note", "n" * 501], "`note` must be"),
        (["create", "--user", "a", "--note", "\x1b[2J"], "`note` must be"),
        (["create", "--user", "a", "--class", "urgent"], "invalid choice"),
        (["create", "--user", "a", "--requests-per-s", "0"], "is not over 0"),
        (["create", "--user", "a", "--requests-per-s", "1e9"], "`requests_per_s` must be"),
        (["create", "--user", "a", "--tokens-per-min", "1.5"], "--tokens-per-min"),
        (["create", "--user", "a", "--max-concurrent", "9999999"], "`max_concurrent` must be"),
        (["create", "--user", "a", "--expires", "soon"], "is neither a time"),
        (["create", "--user", "a", "--expires", "2001-01-01"], "is over already"),
        (["list", "--store", "x", "--access", "y"], "`--access` says where"),
        (["list", "--access", "/dev/null/none"], "cannot be read"),
        (["list", "--store", "postgres://db"], "redis://"),
        (["create", "--user", "a", "--store", ""], "A store is a path"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_made(
    token: Shell, state: Path, arguments: list[str], told: str
) -> None:
    assert told in token.refused(*arguments)
    assert not state.exists()


def test_another_key_than_the_stores_makes_no_token(token: Shell, tmp_path: Path) -> None:
    token("create", "--user", "ada")
    (tmp_path / "other.key").write_bytes(bytes(32))
    (tmp_path / "other.key").chmod(0o600)
    told = token.refused("create", "--user", "bob", "--key-file", str(tmp_path / "other.key"))
    assert "is not the key of the tokens in" in told
    assert len(token.ids()) == 1


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("30m", NOW_S + 1_800),
        ("12h", NOW_S + 43_200),
        ("90d", NOW_S + 90 * 86_400),
        ("4w", NOW_S + 28 * 86_400),
        ("2030-01-31", 1_896_048_000),
        ("2030-01-31T12:00:00+02:00", 1_896_084_000),
    ],
)
def test_when_a_token_ends(text: str, at_s: int) -> None:
    assert expiry(text).at_s(NOW_S) == at_s


@pytest.mark.parametrize(
    "text", ["", "0d", "-1d", "1y", "9999999999d", "101w 1d", "d", "١d", "40000d", "2030-13-01"]
)
def test_what_is_no_end(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        expiry(text)


def test_numbers_are_short_and_lose_nothing_that_is_whole() -> None:
    standing = {"requests_per_s": 1500.0, "tokens": 59999.25, "risk": 0.123456, "rate": 7.0004}
    lines = [line.split() for line in described("jwt_1", None, standing, 0.0)]
    assert [line[1] for line in lines[-4:]] == ["1500", "59999", "0.123", "7"]
