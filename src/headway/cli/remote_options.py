"""The options of `serve` for an engine that another server runs. What they make is `remote_engine`'s."""

import argparse

from headway.cli.options import above_zero, api_key, positive
from headway.core.errors import ConfigError
from headway.core.secret import Secret
from headway.engine.remote_config import RemoteConfig, check_url

_REMOTE = RemoteConfig(model="", url="")


def add_remote_options(parser: argparse.ArgumentParser) -> None:
    """Add the options from which `remote_config` builds a RemoteConfig."""
    group = parser.add_argument_group("remote engine")
    group.add_argument(
        "--engine",
        metavar="URL",
        help="serve the model of another server, vLLM or Headway, at http://host:port/v1 instead of one of our own "
        "(docs/remote-engines.md); needs --tokenizer",
    )
    group.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="the model whose tokenizer and chat template the remote engine's are; named as MODEL is",
    )
    group.add_argument(
        "--engine-model",
        metavar="NAME",
        help="the remote engine's name for the model (default: the first it lists)",
    )
    group.add_argument(
        "--engine-key-env",
        metavar="VARIABLE",
        help="environment variable that holds the key which the remote engine asks for",
    )
    group.add_argument(
        "--engine-concurrency",
        type=positive,
        metavar="N",
        help="requests sent to the remote engine at once; more wait here by class and tenant (default: found out from how "
        "long first tokens take)",
    )
    group.add_argument(
        "--engine-connect-timeout",
        type=above_zero,
        metavar="SECONDS",
        default=_REMOTE.connect_timeout_s,
        help="most seconds for a connection to the remote engine (default: %(default)g)",
    )
    group.add_argument(
        "--engine-first-token-timeout",
        type=above_zero,
        metavar="SECONDS",
        default=_REMOTE.first_token_timeout_s,
        help="most seconds from sending a request to its first token (default: %(default)g)",
    )
    group.add_argument(
        "--engine-gap-timeout",
        type=above_zero,
        metavar="SECONDS",
        default=_REMOTE.gap_timeout_s,
        help="most seconds between two pieces of an answer (default: %(default)g)",
    )


def check_choice(args: argparse.Namespace) -> None:
    """Raise ConfigError for options that belong to a remote engine without one, or to our own with one, or are none."""
    if args.engine is not None:
        if args.model is not None:
            raise ConfigError(
                "MODEL names an engine of our own: with --engine name the model with --tokenizer."
            )
        if args.tokenizer is None:
            raise ConfigError(
                "--engine needs --tokenizer MODEL: the model whose tokens the remote engine takes."
            )
        if args.pooling is not None:
            raise ConfigError("--pooling needs an engine of our own: remote ones make no embeddings.")
        check_url(args.engine)
        api_key(args.engine_key_env)
        return
    for name in ("tokenizer", "engine_model", "engine_key_env", "engine_concurrency"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} needs --engine.")


def remote_config(args: argparse.Namespace, model: str) -> RemoteConfig | None:
    """Return how the remote engine is reached, None for an engine of our own; raises ConfigError."""
    if args.engine is None:
        return None
    key = api_key(args.engine_key_env)
    return RemoteConfig(
        model=model,
        url=check_url(args.engine),
        upstream_model=args.engine_model,
        api_key=None if key is None else Secret(key),
        max_context=args.max_context,
        max_concurrent=args.engine_concurrency,
        connect_timeout_s=args.engine_connect_timeout,
        first_token_timeout_s=args.engine_first_token_timeout,
        gap_timeout_s=args.engine_gap_timeout,
    )
