"""The options of `serve` that say what is observed, and how closely; `obs/config.py` is what comes of them."""

import argparse
from collections.abc import Mapping
from typing import Final, get_args
from urllib.parse import urlsplit

from headway.cli.options import above_zero, finite, not_negative
from headway.core.caller import Kind
from headway.obs.config import ALARM_MS, ObsConfig, TokenConfig, TraceConfig
from headway.obs.token_names import is_name

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_TOKENS = TokenConfig()


def add_observability_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("observability")
    group.add_argument(
        "--watch-token",
        metavar="ID",
        action="append",
        type=token_id,
        default=[],
        help="API token, by its public id, whose latency always has series of its own; may be repeated (default: none)",
    )
    group.add_argument(
        "--top-tokens",
        metavar="N",
        type=not_negative,
        default=_TOKENS.num_top,
        help="of the other tokens, how many have series of their own: those used most (default: %(default)s)",
    )
    group.add_argument(
        "--alarm-ms",
        metavar="KIND=MS,…",
        type=alarms,
        default=ALARM_MS,
        help="milliseconds after which a call is slow, by its token's kind; kinds left out keep their default "
        f"(default: {','.join(f'{kind}={alarm_ms:g}' for kind, alarm_ms in ALARM_MS.items())})",
    )
    group.add_argument(
        "--otlp",
        metavar="URL",
        type=collector,
        help="OpenTelemetry collector to send spans to, over OTLP/HTTP, such as http://127.0.0.1:4318 "
        "(default: OTEL_EXPORTER_OTLP_ENDPOINT, else no spans)",
    )
    group.add_argument(
        "--trace-ratio",
        metavar="SHARE",
        type=share,
        default=TraceConfig().sample_ratio,
        help="share of calls that have a span, besides those that always have: class high, tokens of the kind admin, "
        "and what failed; more while calls fail, less where over 20 a second would have one; 0 and 1 stay as they are "
        "(default: %(default)s)",
    )


def obs_config(args: argparse.Namespace) -> ObsConfig:
    """Return what the options say."""
    return ObsConfig(
        tokens=TokenConfig(
            watched=frozenset(args.watch_token), num_top=args.top_tokens, alarm_ms=args.alarm_ms
        ),
        traces=TraceConfig(endpoint=args.otlp, sample_ratio=args.trace_ratio),
    )


def token_id(text: str) -> str:
    """Parse a token's public id; raises ArgumentTypeError for what none can be."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(
            "an id has 1 to 128 visible ASCII characters, the first of them no _"
        )
    return text


def alarms(text: str) -> Mapping[Kind, float]:
    """Parse thresholds such as `admin=50,user=200`; raises ArgumentTypeError."""
    found: dict[Kind, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        kind = next((kind for kind in _KINDS if kind == name), None)
        if kind is None or kind in found:
            raise argparse.ArgumentTypeError(
                f"{part!r} is no threshold such as admin=50; kinds are {', '.join(_KINDS)}, each at most once"
            )
        found[kind] = above_zero(value)
    return {**ALARM_MS, **found}


def collector(text: str) -> str:
    """Parse a collector's base URL; raises ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is none
        is_url = False
    if not is_url:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL such as http://127.0.0.1:4318")
    return text


def share(text: str) -> float:
    """Parse a number from 0 to 1; raises ArgumentTypeError."""
    number = finite(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie within 0 and 1")
    return number
