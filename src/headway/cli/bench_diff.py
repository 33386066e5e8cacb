"""`headway bench diff`: how two recorded runs differ, and what can be said of it."""

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headway.cli.bench_options import require_packages, require_pyarrow
from headway.cli.options import fraction
from headway.cli.table import aligned

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.lab.difference import Difference
    from headway.lab.recorded import Recorded

_NAMES = ("RUN1", "RUN2")
_HEAD = ("", *_NAMES, "difference (95 % interval)", "change (95 % interval)", f"{_NAMES[1]} is")


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "bench diff",
        help="tell how two recorded runs differ",
        description="Tell how two runs that `headway bench` recorded differ, with intervals. One run against one cannot "
        "tell a change from the machine's mood between them; `headway bench compare` can.",
    )
    parser.add_argument(
        "run1", metavar="RUN1", help="a file of `headway bench --raw`, or of what --json printed"
    )
    parser.add_argument("run2", metavar="RUN2", help="another, which is compared with the first")
    add_verdict_options(parser)
    parser.set_defaults(run=run)


def add_verdict_options(parser: argparse.ArgumentParser) -> None:
    """Add how differences are judged and told."""
    parser.add_argument(
        "--least-effect",
        type=fraction,
        metavar="SHARE",
        default=0.05,
        help="the smallest difference that matters (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    """Compare and print; raises HeadwayError for files that hold no run."""
    require_packages()
    require_pyarrow()
    from headway.lab.difference import differences, verdict
    from headway.lab.recorded import comparable, read_run

    a, b = (
        read_run(path, name, seed)
        for seed, (path, name) in enumerate(zip((args.run1, args.run2), _NAMES, strict=True))
    )
    of_a, of_b, against = comparable(a, b)
    found = differences(of_a, of_b, least_effect=args.least_effect)
    sentence = verdict(found, least_effect=args.least_effect, names=_NAMES)
    if args.json:
        print(json.dumps(_as_json(sentence, against, (a, b), found, args.least_effect), indent=2))
    else:
        print("\n".join(_lines(sentence, against, (a, b), found)))
    return 0


def _as_json(
    sentence: str,
    against: list[str],
    runs: tuple["Recorded", "Recorded"],
    found: tuple["Difference", ...],
    least_effect: float,
) -> dict[str, object]:
    from headway.lab.difference import CAVEAT

    return {
        "verdict": sentence,
        "caveat": CAVEAT,
        "against": against,
        "least_effect": least_effect,
        "runs": [
            {
                "path": each.path,
                "endpoint": each.endpoint,
                **each.traits.asked,
                "started_at": None if each.started_at is None else each.started_at.isoformat(),
                "offered": each.traits.num_offered,
                "ok": each.traits.num_offered - each.traits.num_failed,
                "records": each.has_records,
            }
            for each in runs
        ],
        "figures": {
            each.kind.key: {
                "unit": each.kind.unit,
                "values": [each.a, each.b],
                "difference": each.difference,
                "difference_ci95": each.interval,
                "ratio": each.ratio,
                "ratio_ci95": each.ratio_interval,
                "judgement": each.judgement,
            }
            for each in found
        },
    }


def _lines(
    sentence: str, against: list[str], runs: tuple["Recorded", "Recorded"], found: tuple["Difference", ...]
) -> Iterator[str]:
    from headway.lab.difference import CAVEAT

    yield sentence
    yield CAVEAT
    yield from (f"  {each}" for each in against)
    yield ""
    for each in runs:
        asked, when = each.traits.asked, each.started_at
        yield (
            f"{each.traits.name}: {each.model} at {each.endpoint}, {asked['workload']}, {asked['arrival']}, "
            f"{each.traits.num_offered} requests" + (f", {when:%Y-%m-%d %H:%M:%S} UTC" if when else "")
        )
    yield ""
    yield from aligned([_HEAD, *(_row(each) for each in found)], "<>>>><")


def _row(found: "Difference") -> tuple[str, ...]:
    kind = found.kind
    name = kind.name if kind.unit == "share" else f"{kind.name}, {kind.unit}"

    def told(value: float | None, sign: str = "") -> str:
        if value is None:
            return "-"
        if kind.unit == "share":
            return f"{value:{sign}.1%}"
        return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.3g}"

    difference = told(found.difference, "+")
    if found.interval is not None:
        difference += f" ({told(found.interval[0], '+')} to {told(found.interval[1], '+')})"
    change = "-" if found.ratio is None else f"{found.ratio - 1:+.1%}"
    if found.ratio_interval is not None:
        low, high = found.ratio_interval
        change += f" ({low - 1:+.1%} to {high - 1:+.1%})"
    judged = {"unknown": "not known"}.get(found.judgement, found.judgement)
    return name, told(found.a), told(found.b), difference, change, judged
