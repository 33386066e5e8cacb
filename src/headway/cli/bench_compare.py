"""`headway bench compare`: two endpoints or configurations by turns, and whether one of them is faster."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_diff import add_verdict_options
from headway.cli.bench_options import (
    INTERRUPTED,
    add_load_options,
    load_options,
    require_packages,
    require_pyarrow,
)
from headway.cli.options import positive
from headway.core.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.lab.rounds import Round, Turn

_REQUESTS = 20
_ROUNDS = 5
_SUMMARY = "comparison.json"
_WHAT = "The comparison"


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "bench compare",
        help="tell whether one of two endpoints is faster, by turns",
        description="Measure two endpoints, or two models of one, in rounds in which both take turns, and tell which is "
        "faster, or that they are equal, or that it cannot be told. A side is URL, or URL,model=NAME,api-key-env=VAR.",
    )
    parser.add_argument(
        "a", metavar="A", help="the side that is compared with, such as http://127.0.0.1:8000"
    )
    parser.add_argument("b", metavar="B", help="the side of which faster or slower is said")
    parser.add_argument(
        "--rounds",
        type=_rounds,
        metavar="N",
        default=_ROUNDS,
        help=f"turns of each side, at least {_ROUNDS}: more tell smaller differences (default: %(default)s)",
    )
    add_load_options(parser, requests_default="%(default)s in each turn", ladder=False)
    add_verdict_options(parser)
    parser.add_argument("--raw", type=Path, metavar="DIR", help="keep the record of every request")
    parser.set_defaults(run=run, requests=_REQUESTS)


def run(args: argparse.Namespace) -> int:
    """Measure both and print; raises HeadwayError for what cannot be asked."""
    require_packages()
    import uvloop

    from headway.cli.bench_compare_report import as_json, as_text
    from headway.lab.rounds import Plan, take_turns
    from headway.lab.side import parse_side
    from headway.lab.verdict import verdict

    a, b = (
        load_options(args, side.endpoint, side.model) for side in (parse_side(args.a), parse_side(args.b))
    )
    keeper = None if args.raw is None else _Keeper(args.raw)
    done = uvloop.run(
        take_turns(
            Plan(a=a, b=b, num_rounds=args.rounds),
            _tell if sys.stderr.isatty() else lambda _: None,
            (lambda _: None) if keeper is None else keeper.keep,
        )
    )
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    found = verdict(done, least_effect=args.least_effect)
    told = as_json(done, found, args.least_effect)
    print(json.dumps(told, indent=2) if args.json else as_text(done, found))
    if keeper is not None:
        keeper.finish(told)
    return INTERRUPTED if done.interrupted else 0


class _Keeper:
    """Keeps each round's runs as it is complete; what goes wrong then is told when all has been measured."""

    def __init__(self, folder: Path) -> None:
        require_pyarrow()
        self._folder = folder
        self._error: ConfigError | None = None
        try:
            folder.mkdir(exist_ok=True)
            used = any(folder.iterdir())
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used: {error.strerror}.") from error
        if used:
            raise ConfigError(f"{folder} is not empty; rounds of two comparisons would be mixed there.")
        from headway.lab.atomic_file import check_writable

        check_writable(folder / _SUMMARY, _WHAT)

    def keep(self, done: "Round") -> None:
        from headway.cli.bench_report import as_json
        from headway.lab.raw_file import write_raw

        for name, result in (("A", done.a), ("B", done.b)):
            place = self._folder / f"side={name}" / f"round={done.number}"
            try:
                place.mkdir(parents=True)
                write_raw(place / "run.parquet", result, as_json(result))
            except OSError as error:
                self._error = self._error or ConfigError(f"{place} cannot be made: {error.strerror}.")
            except ConfigError as error:
                self._error = self._error or error

    def finish(self, told: dict[str, object]) -> None:
        """Write what was found; raises ConfigError for the first file that could not be written."""
        from headway.lab.atomic_file import write_whole

        if self._error is not None:
            raise self._error
        write_whole(self._folder / _SUMMARY, json.dumps(told, indent=2) + "\n", _WHAT)


def _tell(turn: "Turn") -> None:
    what = f"round {turn.number}" if turn.number else "warming up"
    print(f"\r\x1b[K{what}: {turn.side}", end="", file=sys.stderr, flush=True)


def _rounds(text: str) -> int:
    number = positive(text)
    if number < _ROUNDS:
        raise argparse.ArgumentTypeError(f"{number} rounds tell nothing: at least {_ROUNDS} are needed")
    return number
