"""Options that `headway bench` and `headway bench compare` share: what is sent, when, how much; the packages they need."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import above_zero, not_negative, positive
from headway.core.errors import ConfigError

INTERRUPTED = 130
"""Exit code of a measurement that Ctrl-C ended and that told what was over."""

if TYPE_CHECKING:
    from headway.lab.endpoint import Endpoint
    from headway.lab.run_options import RunOptions


def add_load_options(
    parser: argparse.ArgumentParser,
    *,
    requests_default: str = "100, the workload's own number, or all of a trace, if nothing else ends the run",
    ladder: bool = True,
    client: bool = True,
) -> None:
    """Add what is sent, when, and how much of it: what `load_options` makes options of; `client`: and by what."""
    parser.add_argument(
        "--workload",
        default="light",
        help="light, medium, multi-turn, shared-prefix:G:N, context:2k,4k, mixed:… or trace:FILE (default: %(default)s)",
    )
    parser.add_argument(
        "--arrival",
        help=f"closed:4, constant:5, poisson:5, gamma:5:0.5{', stages:… or ladder' if ladder else ' or stages:…'} "
        "(default: closed:1, of a trace its times)",
    )
    parser.add_argument(
        "--requests",
        type=positive,
        metavar="N",
        help="requests; no conversation begins after so many, those begun go on to their end "
        f"(default: {requests_default})",
    )
    parser.add_argument(
        "--duration", type=positive, metavar="S", help="seconds in which conversations may start"
    )
    parser.add_argument(
        "--output-tokens",
        type=positive,
        metavar="N",
        default=128,
        help="most tokens of an answer (default: %(default)s)",
    )
    parser.add_argument(
        "--lines",
        type=positive,
        metavar="N",
        help="of code in a prompt of medium, a shared prefix or a multi-turn conversation's start (default: 300, 300, 100)",
    )
    parser.add_argument(
        "--trace-speed", type=above_zero, metavar="X", help="replay a trace so many times as fast"
    )
    parser.add_argument(
        "--spread-times",
        nargs="?",
        type=above_zero,
        const=True,
        metavar="S",
        help="spread a trace's requests of one time over S seconds (alone: over the grid of its format, as 3 s of Mooncake)",
    )
    add_bytes_per_token(parser)
    if client:
        _add_client_options(parser)
    parser.add_argument("--slo", metavar="LIMITS", help="what is good enough, such as ttft=480ms,itl=50ms")
    parser.add_argument(
        "--seed",
        type=not_negative,
        metavar="N",
        default=0,
        help="of prompts and arrivals (default: %(default)s)",
    )


def _add_client_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="the model's tokenizer.json, to count tokens of answers whose usage the server does not send",
    )
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="of the client (default: as many as the load takes, one per core at most)",
    )


def add_bytes_per_token(parser: argparse.ArgumentParser) -> None:
    """Add how an access log's bytes become tokens."""
    parser.add_argument(
        "--bytes-per-token",
        type=bytes_per_token,
        metavar="N[:M]",
        help="of an access log: bytes of a prompt's token, and of an answer's if it differs, such as 4:200 for streams "
        "(default: 4)",
    )


def bytes_per_token(text: str) -> tuple[float, float]:
    """Parse N or N:M into bytes per token of prompts and answers; raises ArgumentTypeError."""
    prompt, colon, answer = text.partition(":")
    return above_zero(prompt), above_zero(answer if colon else prompt)


def require_packages() -> None:
    """Raise ConfigError where the lab's packages are missing."""
    try:
        import scipy  # noqa: F401
    except ImportError:
        raise ConfigError(
            "`headway bench` needs numpy and scipy: `make lab`, or pip install 'headway[lab]'."
        ) from None


def require_pyarrow() -> None:
    """Raise ConfigError where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ConfigError("Parquet files need pyarrow: `make lab`, or pip install 'headway[lab]'.") from None


def check_raw(path: Path) -> None:
    """Raise ConfigError where no raw file could be written, before anything is measured."""
    require_pyarrow()
    from headway.lab.raw_file import check_raw

    check_raw(path)


def load_options(args: argparse.Namespace, endpoint: "Endpoint", model: str | None) -> "RunOptions":
    """Build what is measured of parsed options; raises ConfigError for an SLO that is none."""
    from headway.lab.api import run_options

    return run_options(
        endpoint,
        model,
        workload=args.workload,
        arrival=args.arrival,
        requests=args.requests,
        duration_s=args.duration,
        output_tokens=args.output_tokens,
        lines=args.lines,
        trace_speed=args.trace_speed,
        spread_times=args.spread_times or False,
        bytes_per_token=args.bytes_per_token,
        tokenizer=getattr(args, "tokenizer", None),
        slo=args.slo,
        seed=args.seed,
        processes=getattr(args, "processes", None),
    )
