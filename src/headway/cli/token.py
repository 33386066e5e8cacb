"""`headway token create|list|revoke|show`: the API tokens that a server takes. What carries it out is in `token_run`."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, get_args

from headway.cli.expiry import expiry
from headway.cli.options import above_zero, positive
from headway.core.caller import Kind
from headway.core.request import ServiceClass

if TYPE_CHECKING:
    from headway.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommands."""
    parser = subparsers.add_parser(
        "token",
        help="make, list, revoke and show the API tokens of a server",
        description="The API tokens of a server: `headway token create`, `list`, `revoke` and `show`.",
    )
    parser.set_defaults(run=partial(_needs_a_verb, parser))
    _add_create(subparsers)
    _add_list(subparsers)
    _add_revoke(subparsers)
    _add_show(subparsers)


def _add_create(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "token create",
        help="make an API token, and print it: it is shown once",
        description="Make an API token. It is printed on standard output, once and alone; what is kept of it cannot be "
        "turned back into it.",
    )
    parser.add_argument(
        "--user", required=True, metavar="NAME", help="who will use it, unique within the tenant"
    )
    parser.add_argument(
        "--tenant",
        metavar="NAME",
        default="",
        help="whom its requests are accounted to (default: the default tenant)",
    )
    parser.add_argument(
        "--class",
        dest="service_class",
        choices=get_args(ServiceClass),
        default="normal",
        help="whose share of the engine it is served from (default: %(default)s)",
    )
    parser.add_argument(
        "--kind",
        choices=get_args(Kind),
        default="user",
        help="what it is for, which decides what latency is worth an alarm (default: %(default)s)",
    )
    parser.add_argument(
        "--requests-per-s",
        metavar="N",
        type=above_zero,
        help="requests a second while it behaves (default: the server's)",
    )
    parser.add_argument(
        "--tokens-per-min",
        metavar="N",
        type=positive,
        help="tokens a minute, of prompts and answers together (default: the server's)",
    )
    parser.add_argument(
        "--max-concurrent", metavar="N", type=positive, help="requests at once (default: the server's)"
    )
    parser.add_argument(
        "--expires",
        metavar="WHEN",
        type=expiry,
        help="when it ends: 12h, 90d or 4w from now, or a date such as 2030-01-31 (default: never)",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="what you want to know of it later")
    _add_store_options(parser)
    parser.add_argument(
        "--key-file",
        metavar="PATH",
        help="the server's key, under which tokens are kept; made on first use (default: tokens.key beside the store)",
    )
    parser.set_defaults(run=partial(_run, "create"))


def _add_list(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "token list", help="list the API tokens", description="List the API tokens, the oldest first."
    )
    _add_store_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.set_defaults(run=partial(_run, "list"))


def _add_revoke(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "token revoke",
        help="end an API token, for good",
        description="End an API token, for good. Servers that run take it a few seconds longer (5, unless they are set "
        "otherwise).",
    )
    parser.add_argument("token_id", metavar="ID", type=_public_id, help="the token's public id, tok_…")
    _add_store_options(parser)
    parser.set_defaults(run=partial(_run, "revoke"))


def _add_show(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "token show",
        help="show an API token, and how its user stands",
        description="Show what is kept of an API token, and what the server says of how its user behaves. Of somebody who "
        "shows a JWT there is only the latter.",
    )
    parser.add_argument("token_id", metavar="ID", type=_public_id, help="the public id, tok_… or jwt_…")
    _add_store_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=partial(_run, "show"))


def _add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="PATH|URL",
        help="where tokens are kept: a file, or a Redis such as redis://host:6379/0 (default: tokens.sqlite3 in "
        "$XDG_STATE_HOME/headway, else in ~/.local/state/headway)",
    )
    parser.add_argument(
        "--access",
        metavar="FILE",
        help="the TOML file that `headway serve` is given: takes store and key from its table [tokens]",
    )


def _public_id(text: str) -> str:
    """Parse a public id; raises ArgumentTypeError, which does not repeat what may be a token."""
    prefix, _, rest = text.partition("_")
    if prefix not in ("tok", "jwt") or len(rest) != 12 or not set(rest) <= set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(
            "that is no public id, tok_ and 12 hexadecimal digits: `headway token list` has them"
        )
    return text


def _needs_a_verb(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:  # noqa: ARG001  # as every `run`
    parser.error("say what to do: create, list, revoke or show")


def _run(verb: str, args: argparse.Namespace) -> int:
    """Carry it out; raises HeadwayError."""
    from headway.cli.token_run import run_verb

    return run_verb(verb, args)
