from pathlib import Path

import pytest

from headway.cli.profile_file import read_profile
from headway.core.errors import ConfigError
from headway.wire.profile import ProfileSettings
from support.real_server import headway, real_server

TOML = 'role = "You review code."\ndomain = "Payments, in Go."\nhigh_water = 0.5\n'
EXPECTED = ProfileSettings(role="You review code.", domain="Payments, in Go.", high_water=0.5)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("p.toml", TOML, EXPECTED),
        (
            "p.json",
            '{"role": "You review code.", "domain": "Payments, in Go.", "high_water": 0.5}',
            EXPECTED,
        ),
        ("p.toml", "", ProfileSettings()),
        ("p.conf", "domain = 'x'", ProfileSettings(domain="x")),
    ],
)
def test_a_file_is_read(tmp_path: Path, name: str, text: str, expected: ProfileSettings) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_profile(path) == expected


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("p.toml", b"role = ", "is not TOML"),
        ("p.json", b"{", "is not JSON"),
        ("p.json", b"[" * 100_000, "is not JSON"),
        ("p.toml", b"roles = 'x'", "unknown field `roles`"),
        ("p.toml", b"high_water = 1.5", r"`float` < 1.0 - at `\$.high_water`"),
        ("p.toml", b"role = 3", r"`\$.role`"),
        ("p.json", b"[]", "Expected `object`"),
        ("p.toml", b"role = '\xff'", "is not UTF-8: byte 8"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        read_profile(path)


@pytest.mark.native
def test_a_missing_file_ends_the_command_before_a_model_is_looked_for() -> None:
    done = headway("serve", "no-such-model", "--profile", "no-such-file.toml")
    assert done.status == 2
    assert (
        done.stderr == "headway: The profile no-such-file.toml cannot be read: No such file or directory.\n"
    )


@pytest.mark.native
def test_the_command_serves_what_the_file_says(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(TOML)
    with real_server(tiny_model, tmp_path, "--profile", str(path)) as server:
        found = server.get("/v1/profile").json()
    assert (found["role"], found["domain"], found["high_water"]) == (EXPECTED.role, EXPECTED.domain, 0.5)
    assert found["window_tokens"] > 0
