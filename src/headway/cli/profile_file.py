"""The operator's profile: the file that `serve --profile` names, read once, before anything slow happens."""

import tomllib
from pathlib import Path

import msgspec

from headway.core.errors import ConfigError
from headway.wire.profile import ProfileSettings


def read_profile(path: Path) -> ProfileSettings:
    """Read a profile from a TOML file, or a JSON file if its name ends so; raises ConfigError that names what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The profile {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The profile {path} is not UTF-8: byte {error.start}.") from error
    try:
        values = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        return msgspec.convert(values, ProfileSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The profile {path} is malformed: {error}.") from error
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"The profile {path} is not {kind}: {error}.") from error
