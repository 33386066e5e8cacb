"""`headway serve --access`: the file is checked before anything starts, and then a token is what opens the door."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from headway.cli.access_file import read_access_file
from headway.cli.http_server import bind, check_reach
from headway.core.errors import ConfigError
from support.real_server import LIMIT_S, RealServer, headway, real_server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.toml"


def test_an_empty_table_of_tokens_is_enough(path: Path) -> None:
    path.write_text("[tokens]\n")
    settings = read_access_file(path)
    assert settings.access.tokens is not None
    assert settings.access.jwt is None
    assert settings.limits.tokens_per_min is None


def test_limits_stand_beside_who_may_call(path: Path) -> None:
    path.write_text("[tokens]\n[limits]\ntokens_per_min = 200_000\n")
    assert read_access_file(path).limits.tokens_per_min == 200_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[token]\n", "`token` is no setting; there are the tables [tokens], [jwt], [limits]."),
        ("[tokens]\nstor = 'x'\n", "`tokens.stor` is no setting; there are store, key_file, "),
        (
            "[tokens]\n[limits]\nrequests_per_sec = 1\n",
            "limits.requests_per_sec is no setting; there are requests_per_s, ",
        ),
        ("[limits]\n", "lets nobody in: it needs a table [tokens] or [jwt]"),
        ("limits = 5\n[tokens]\n", "`limits` must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_what_there_is(path: Path, text: str, told: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_access_file(path)
    assert told in caught.value.message


def test_beyond_loopback_it_takes_a_word_on_who_may_call(caplog: pytest.LogCaptureFixture) -> None:
    with bind("0.0.0.0", 0) as everywhere:
        with pytest.raises(ConfigError, match=r"with --access who may, or with --allow-anonymous"):
            check_reach(everywhere, "0.0.0.0", asks=False, allow_anonymous=False)
        check_reach(everywhere, "0.0.0.0", asks=True, allow_anonymous=False)
        assert caplog.messages == []
        check_reach(everywhere, "0.0.0.0", asks=False, allow_anonymous=True)
        assert caplog.messages == [
            "listening on 0.0.0.0 without asking who calls: whoever reaches it can use it"
        ]
    with bind("127.0.0.1", 0) as here:
        check_reach(here, "127.0.0.1", asks=False, allow_anonymous=False)


@pytest.fixture
def server(path: Path, tiny_model: Path, tmp_path: Path) -> Iterator[RealServer]:
    path.write_text('[tokens]\nstore = "tokens.sqlite3"\n')
    with real_server(tiny_model, tmp_path, "--access", str(path)) as server:
        yield server


@pytest.mark.native
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs the Debian package curl")
def test_the_printed_curl_line_works_with_a_token(server: RealServer, path: Path) -> None:
    start = server.stdout.index("curl -N")
    line = server.stdout[start : server.stdout.index("\n\nStop with")]
    token = headway("token", "create", "--user", "ada", "--access", str(path)).stdout.strip()
    done = subprocess.run(
        line,
        shell=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=True,
        text=True,
        env=os.environ | {"TOKEN": token},
    )
    assert done.stdout.endswith("data: [DONE]\n\n")

    refused = httpx2.get(f"{server.url}/v1/models", timeout=LIMIT_S)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")

    chat = headway("chat", "--url", server.url, "--prompt", "hi")
    assert chat.status == 2
    assert "--api-key-env names the variable" in chat.stderr


@pytest.mark.native
def test_a_header_says_nothing_of_where_a_guess_comes_from(server: RealServer) -> None:
    with httpx2.Client(timeout=LIMIT_S) as client:
        statuses = [
            client.get(
                f"{server.url}/v1/models",
                headers={"authorization": "Bearer hw_guess", "x-forwarded-for": f"203.0.113.{number % 250}"},
            ).status_code
            for number in range(300)
        ]
    assert set(statuses) == {401, 429}
    assert statuses.index(429) > 10
