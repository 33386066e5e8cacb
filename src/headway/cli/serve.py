"""`headway serve`: serve a model over HTTP until a signal asks to stop.

What serves, and what signals do to it, is in `http_server`, which is imported only when it is needed.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from headway.cli.observability_options import add_observability_options, obs_config
from headway.cli.options import (
    MODEL_HELP,
    add_engine_options,
    add_log_options,
    add_scheduler_options,
    byte_size,
    engine_config,
    model_label,
    port_number,
    positive,
    web_origin,
)
from headway.cli.remote_options import add_remote_options, check_choice, remote_config
from headway.core.request import Pooling
from headway.gateway.config import GatewayConfig
from headway.models.sources import served_name
from headway.wire.profile import ProfileSettings

if TYPE_CHECKING:
    from headway.cli.main import Subparsers

_DEFAULT_MODEL = "smollm2"
_GATEWAY = GatewayConfig()


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP (OpenAI's API)",
        description="Serve a model over HTTP with OpenAI's API, streaming included.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help=f"{MODEL_HELP} (default: {_DEFAULT_MODEL}, or what --engine serves)",
    )
    network = parser.add_argument_group("network")
    network.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; beyond loopback it takes --access or --allow-anonymous (default: %(default)s)",
    )
    network.add_argument(
        "--port",
        metavar="PORT",
        type=port_number,
        default=8000,
        help="port to listen on; 0 = any free one (default: %(default)s)",
    )
    network.add_argument(
        "--access",
        metavar="FILE",
        type=Path,
        help="TOML file that says who may call, by API tokens or JWT, and how much (docs/access.md); without it nobody is "
        "asked, and the server listens on loopback only",
    )
    network.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="listen beyond loopback without --access: behind a proxy that authenticates",
    )
    network.add_argument(
        "--served-name",
        metavar="NAME",
        type=model_label,
        help="the `model` that requests name (default: from MODEL)",
    )
    network.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        type=web_origin,
        default=[],
        help="web origin whose pages may call the service (CORS); may be repeated; * = every one (default: none)",
    )
    network.add_argument(
        "--trust-headers",
        action="store_true",
        help="let requests say their class, tenant, deadlines and session in x-headway-* headers: only where every client "
        "is known, or a proxy drops those that strangers send (default: they are ignored)",
    )
    network.add_argument(
        "--share-prefixes",
        action="store_true",
        help="one prefix cache for all tenants: faster where they send the same prompts, but how fast an answer begins "
        "then tells one what another has asked (default: one for each)",
    )
    network.add_argument(
        "--streams",
        metavar="PLACE",
        default=_GATEWAY.streams,
        help="where resumable streams are kept: memory, the path of an SQLite file, or a redis:// URL "
        "(default: %(default)s)",
    )
    network.add_argument(
        "--stream-grace",
        metavar="SECONDS",
        type=positive,
        default=30,
        help="how long the answer of a resumable stream goes on while nobody reads it (default: %(default)s)",
    )
    network.add_argument(
        "--max-body",
        metavar="SIZE",
        type=byte_size,
        default=_GATEWAY.max_body_bytes,
        help="largest request body; a larger one is refused with 413 (default: 8M)",
    )
    network.add_argument(
        "--drain-timeout",
        metavar="SECONDS",
        type=positive,
        default=30,
        help="how long running requests may go on after a signal to stop (default: %(default)s)",
    )
    parser.add_argument(
        "--pooling",
        choices=get_args(Pooling),
        help="how /v1/embeddings makes one vector of a text: the mean of its tokens' states, or the last one "
        "(default: what the model's files say; without a word there, embeddings are refused)",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        type=Path,
        help="TOML or JSON file with the role and domain that /v1/profile tells programs (default: neither)",
    )
    add_remote_options(parser)
    add_engine_options(parser)
    add_scheduler_options(parser)
    add_log_options(parser)
    add_observability_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped; raises HeadwayError when the service cannot start."""
    from headway.cli.access_file import read_access_file
    from headway.cli.http_server import bind, check_reach, serve
    from headway.cli.profile_file import read_profile
    from headway.cli.service import ServiceSettings
    from headway.models.fetch import resolve_model
    from headway.obs.logs import configure

    configure(args.log_level.upper(), args.log_json)
    check_choice(args)
    model = args.tokenizer or args.model or _DEFAULT_MODEL
    access = None if args.access is None else read_access_file(args.access)
    profile = ProfileSettings() if args.profile is None else read_profile(args.profile)
    with bind(args.host, args.port) as listener:
        check_reach(listener, args.host, asks=access is not None, allow_anonymous=args.allow_anonymous)
        name = args.served_name or served_name(model)
        path = resolve_model(model)
        settings = ServiceSettings(
            engine=engine_config(args, name, str(path)),
            remote=remote_config(args, name),
            gateway=GatewayConfig(
                max_body_bytes=args.max_body,
                allow_origins=tuple(args.allow_origin),
                trust_headers=args.trust_headers,
                share_prefixes=args.share_prefixes,
                pooling=args.pooling,
                streams=args.streams,
                stream_grace_s=args.stream_grace,
                profile=profile,
            ),
            obs=obs_config(args),
            access=access,
            log_level=args.log_level.upper(),
            log_json=args.log_json,
        )
        return serve(listener, args.host, settings, drain_timeout_s=args.drain_timeout)
