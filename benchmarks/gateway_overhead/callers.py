"""Makes the tokens of a run: a store of their own in SQLite, as `headway token create` makes it."""

import secrets
import time
from pathlib import Path

from headway.access.api_token import digest_of, make_public_id, make_token
from headway.access.places import agreed_key, key_path, open_store
from headway.access.stored_token import StoredToken
from headway.core.caller import CallerLimits


async def make_tokens(path: Path, count: int) -> list[str]:
    """Return `count` tokens of as many users, kept in the file `path`."""
    store = open_store(str(path), timeout_s=1.0)
    key = await agreed_key(store, key_path(str(path), None))
    shown = []
    for number in range(count):
        token = make_token(secrets.token_bytes)
        await store.create(
            StoredToken(
                token_id=make_public_id(secrets.token_bytes),
                digest=digest_of(key, token),
                tenant=f"tenant-{number % 10}",
                user=f"user-{number}",
                service_class="normal",
                kind="user",
                limits=CallerLimits(),
                note="",
                created_s=int(time.time()),
            )
        )
        shown.append(token.reveal())
    await store.close()
    return shown
