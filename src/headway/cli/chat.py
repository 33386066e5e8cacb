"""`headway chat`: talk to a model in a terminal, on a running server or on one started for this conversation.

A server of our own listens on a Unix socket in a private folder, so nobody else can reach it; from there on both cases
are the same plain HTTP client.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from headway.cli.options import (
    MODEL_HELP,
    add_engine_options,
    add_log_options,
    api_key,
    engine_config,
    finite,
    positive,
)
from headway.core.errors import ConfigError

if TYPE_CHECKING:
    import httpx2

    from headway.cli.main import Subparsers

_CONNECT_TIMEOUT_S = 5.0
"""A server that takes longer to accept a connection is not there; answers themselves may take any time."""

_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_OWN_TEMPERATURE = 0.2
"""Low enough that a small model keeps to its subject; at the API's default of 1 it rambles."""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="Talk to a model in the terminal. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help=f"{MODEL_HELP} (default: smollm2); with --url the model's name there",
    )
    parser.add_argument("--url", help="talk to this server, such as http://127.0.0.1:8000, and start none")
    parser.add_argument(
        "--api-key-env", metavar="VARIABLE", help="environment variable that holds the server's API key"
    )
    parser.add_argument("--prompt", help="answer this one message and end; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system message that begins the conversation")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="longest answer")
    parser.add_argument(
        "--temperature",
        type=finite,
        metavar="T",
        help=f"0 = always the likeliest token (default: {_OWN_TEMPERATURE}; with --url the server's)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    add_engine_options(parser)
    add_log_options(parser)
    parser.set_defaults(run=run, log_level="warning")


def run(args: argparse.Namespace) -> int:
    """Hold the conversation; raises HeadwayError when the server cannot be reached or started."""
    from headway.cli.conversation import Conversation, Settings, first_model, talk
    from headway.obs.logs import configure

    configure(args.log_level.upper(), args.log_json)
    for number in _END_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _leave)
    temperature = args.temperature
    if temperature is None and args.url is None:
        temperature = _OWN_TEMPERATURE
    settings = Settings(
        system=args.system, max_tokens=args.max_tokens, temperature=temperature, seed=args.seed
    )
    with _client(args) as client:
        model = args.model if args.url and args.model else first_model(client)
        conversation = Conversation(client, model, settings)
        if args.prompt is not None:
            conversation.ask(sys.stdin.read() if args.prompt == "-" else args.prompt)
            print()
        else:
            talk(conversation, model)
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    """End through every `finally`, so that nothing stays behind; a second signal must not cut that short."""
    for each in _END_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


@contextmanager
def _client(args: argparse.Namespace) -> "Iterator[httpx2.Client]":
    import httpx2

    timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
    if args.url:
        if not args.url.lower().startswith(("http://", "https://")):
            raise ConfigError(f"--url {args.url} is no address: one begins with http:// or https://.")
        base_url = args.url.removesuffix("/").removesuffix("/v1")
        with httpx2.Client(base_url=base_url, headers=_headers(args.api_key_env), timeout=timeout) as client:
            yield client
        return
    from headway.cli.private_server import private_server
    from headway.models.fetch import resolve_model
    from headway.models.sources import served_name

    name = args.model or "smollm2"
    config = engine_config(args, served_name(name), str(resolve_model(name)))
    with private_server(config, args.log_level.upper(), args.log_json) as path:
        transport = httpx2.HTTPTransport(uds=str(path))
        with httpx2.Client(base_url="http://headway", transport=transport, timeout=timeout) as client:
            yield client


def _headers(api_key_env: str | None) -> dict[str, str]:
    key = api_key(api_key_env)
    return {} if key is None else {"Authorization": f"Bearer {key}"}
