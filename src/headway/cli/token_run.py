"""Carries out `headway token …` on a store: makes, lists, revokes and shows API tokens. It prints, and owns nothing."""

import argparse
import asyncio
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from headway.access.api_token import digest_of, make_public_id, make_token
from headway.access.config import TokensConfig, parse_access, read_toml
from headway.access.places import agreed_key, key_path, open_store
from headway.access.stored_token import StoredToken, check_limits, check_name, check_note
from headway.access.token_store import StoreFailed, TokenStore
from headway.cli.token_report import as_json, described, standing_of, table
from headway.core.caller import CallerLimits
from headway.core.errors import ConfigError

TIMEOUT_S: Final = 5.0
"""Longer than a server waits: nobody else waits for the command."""

Verb = Callable[[TokenStore, TokensConfig, argparse.Namespace], Awaitable[int]]


def run_verb(verb: str, args: argparse.Namespace) -> int:
    """Run one of `VERBS`; raises ConfigError for what cannot be done."""
    try:
        return asyncio.run(_run(VERBS[verb], args, create=verb == "create"))
    except StoreFailed as error:
        raise ConfigError(str(error)) from error


async def _run(verb: Verb, args: argparse.Namespace, *, create: bool) -> int:
    config = _tokens_config(args)
    store = open_store(config.store, timeout_s=TIMEOUT_S, create=create)
    try:
        return await verb(store, config, args)
    finally:
        await store.close()


async def _create(store: TokenStore, config: TokensConfig, args: argparse.Namespace) -> int:
    now_s = int(time.time())
    check_name("--user", args.user)
    check_name("--tenant", args.tenant, may_be_empty=True)
    check_note(args.note)
    limits = check_limits(
        CallerLimits(
            requests_per_s=args.requests_per_s,
            tokens_per_min=args.tokens_per_min,
            max_concurrent=args.max_concurrent,
        )
    )
    expires_s = None if args.expires is None else args.expires.at_s(now_s)
    if expires_s is not None and expires_s <= now_s:
        raise ConfigError("`--expires` is over already.")
    key_file = None if config.key_file is None else Path(config.key_file)
    key = await agreed_key(store, key_path(config.store, key_file))
    token = make_token(secrets.token_bytes)
    stored = StoredToken(
        token_id=make_public_id(secrets.token_bytes),
        digest=digest_of(key, token),
        tenant=args.tenant,
        user=args.user,
        service_class=args.service_class,
        kind=args.kind,
        limits=limits,
        note=args.note,
        created_s=now_s,
        expires_s=expires_s,
    )
    await store.create(stored)
    print(f"Made {stored.token_id}, kept in {store.place}. The token is shown this once:", file=sys.stderr)
    try:
        print(token.reveal(), flush=True)
    except OSError:
        await store.revoke(stored.token_id, now_s)  # nobody has seen it
        raise
    return 0


async def _list(store: TokenStore, _: TokensConfig, args: argparse.Namespace) -> int:
    tokens, now_s = await store.list(), time.time()
    if args.json:
        print(json.dumps([as_json(token, now_s) for token in tokens], indent=2))
        return 0
    for line in table(tokens, now_s):
        print(line)
    return 0


async def _revoke(store: TokenStore, _: TokensConfig, args: argparse.Namespace) -> int:
    if _is_of_jwt(args.token_id):
        raise ConfigError("A JWT cannot be revoked: it ends by itself, and whoever issues it makes no more.")
    token = await store.revoke(args.token_id, int(time.time()))
    if token is None:
        raise _unknown(args.token_id, store)
    print(f"{token.token_id} of {token.user} is revoked.", file=sys.stderr)
    return 0


async def _show(store: TokenStore, _: TokensConfig, args: argparse.Namespace) -> int:
    token = await store.show(args.token_id)
    standing = await store.get_standing(args.token_id)
    if token is None and standing is None:
        if _is_of_jwt(args.token_id):
            raise ConfigError(f"Nothing is kept of {args.token_id} in {store.place}: it was not slowed down.")
        raise _unknown(args.token_id, store)
    now_s = time.time()
    if args.json:
        about = {"id": args.token_id} if token is None else as_json(token, now_s)
        print(json.dumps(about | {"standing": standing_of(standing)}, indent=2))
        return 0
    for line in described(args.token_id, token, standing_of(standing), now_s):
        print(line)
    return 0


def _is_of_jwt(token_id: str) -> bool:
    return token_id.startswith("jwt_")


def _unknown(token_id: str, store: TokenStore) -> ConfigError:
    return ConfigError(f"There is no {token_id} in {store.place}: `headway token list` has them.")


def _tokens_config(args: argparse.Namespace) -> TokensConfig:
    key_file = getattr(args, "key_file", None)
    if args.access is None:
        return TokensConfig(store=args.store, key_file=key_file)
    if args.store is not None or key_file is not None:
        raise ConfigError("`--access` says where store and key are: leave out `--store` and `--key-file`.")
    path = Path(args.access)
    tables = {name: table for name, table in read_toml(path).items() if name in ("tokens", "jwt")}
    tokens = parse_access(tables, path.parent).tokens
    if tokens is None:
        raise ConfigError(f"{path} keeps no tokens: it has no table [tokens], which may be empty.")
    return tokens


VERBS: Final[Mapping[str, Verb]] = {"create": _create, "list": _list, "revoke": _revoke, "show": _show}
