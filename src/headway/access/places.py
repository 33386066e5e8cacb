"""Where tokens and keys lie, and how a store is opened: a path is SQLite's, a URL Redis's."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headway.access.api_token import RandomBytes
from headway.access.server_key import has_key, key_check, read_key, read_or_make_key
from headway.access.sqlite_store import SqliteTokenStore
from headway.access.token_store import StoreFailed, TokenStore
from headway.core.errors import ConfigError

STORE_NAME: Final = "tokens.sqlite3"
KEY_NAME: Final = "tokens.key"
_SCHEMES: Final = ("redis://", "rediss://", "unix://")


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what must outlive the process: $XDG_STATE_HOME/headway, else ~/.local/state/headway.

    It may not exist yet. Raises ConfigError where there is no home.
    """
    xdg = Path(environ.get("XDG_STATE_HOME", ""))
    if xdg.is_absolute():  # XDG: relative paths are ignored
        return xdg / "headway"
    try:
        return Path("~/.local/state/headway").expanduser()
    except RuntimeError:
        raise ConfigError(
            "There is no home directory: set XDG_STATE_HOME, or say where tokens lie."
        ) from None


def is_redis(store: str) -> bool:
    """Whether a store is a Redis, by its URL."""
    return store.startswith(_SCHEMES)


def key_path(store: str | None, key_file: Path | None) -> Path:
    """Return where the key of a store lies: where one says, else beside the file, else in the state folder."""
    if key_file is not None:
        return key_file.expanduser()
    if store is None or is_redis(store):
        return state_folder() / KEY_NAME
    return Path(store).expanduser().parent / KEY_NAME


def open_store(store: str | None, *, timeout_s: float, create: bool = True) -> TokenStore:
    """Return the store at a path or a URL, None = in the state folder; it touches nothing yet. Raises ConfigError."""
    if store is None:
        return SqliteTokenStore(state_folder() / STORE_NAME, create=create, timeout_s=timeout_s)
    if not is_redis(store):
        if "://" in store or not store:
            raise ConfigError("A store is a path, or a URL that begins with redis://, rediss:// or unix://.")
        return SqliteTokenStore(Path(store).expanduser(), create=create, timeout_s=timeout_s)
    try:
        from headway.access.redis_store import RedisTokenStore
    except ImportError as error:
        raise ConfigError(
            'A store in Redis needs redis-py: `make extras`, or pip install "headway[gateway]".'
        ) from error
    return RedisTokenStore(store, timeout_s=timeout_s)


async def agreed_key(store: TokenStore, path: Path, random_bytes: RandomBytes = secrets.token_bytes) -> bytes:
    """Return the key in a file, made on first use, once the store agrees that its tokens are kept under it.

    None is made for a store that has one, so none need be removed, which others may have found. Raises ConfigError for
    another key than the store's, and for a store that fails: nobody could be let in.
    """
    try:
        if await store.get_key_check() is None:
            key = read_or_make_key(path, random_bytes)
        elif has_key(path):
            key = read_key(path)
        else:
            raise ConfigError(
                f"There is no key in {path}, and the tokens in {store.place} are kept under one."
            )
        check = key_check(key)
        agreed = await store.agree_on_key(check)
    except StoreFailed as error:
        raise ConfigError(str(error)) from error
    if agreed != check:
        raise ConfigError(
            f"{path} is not the key of the tokens in {store.place}: give the right one, or keep them elsewhere."
        )
    return key
