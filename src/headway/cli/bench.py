"""`headway bench`: the latency of any OpenAI-compatible endpoint, as its user feels it."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_options import INTERRUPTED, add_load_options, check_raw, load_options, require_packages
from headway.cli.options import api_key
from headway.core.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.lab.measurement import RunResult
    from headway.lab.run_options import RunOptions


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "bench",
        help="measure the latency of an OpenAI-compatible endpoint",
        description="Offer a load to an endpoint, ours or another's, and tell its latency from when each request was due. "
        "docs/lab.md defines the figures and shows the forms of workloads and arrivals.",
    )
    parser.add_argument("url", metavar="URL", nargs="?", help="the endpoint, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="measure this client instead, against a server of its own: how late it stamps, how much it takes",
    )
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument(
        "--api-key-env", metavar="VAR", help="environment variable that holds the endpoint's API key"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="send it with every request (repeat for more); its value is not printed",
    )
    parser.add_argument(
        "--sessions", action="store_true", help="name each conversation in the header x-headway-session"
    )
    parser.add_argument(
        "--streams",
        type=Path,
        metavar="F.toml",
        help="offer several loads at once, a table [[stream]] each; the options below are what they do not say",
    )
    add_load_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--no-live", action="store_true", help="no table in the terminal while it runs (on standard error)"
    )
    parser.add_argument(
        "--report", metavar="F.html", help="write a page with plots as well: one file, opens offline"
    )
    parser.add_argument("--raw", type=Path, metavar="F.parquet", help="keep the record of every request")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and print; raises HeadwayError for what cannot be asked."""
    require_packages()
    if args.self_test:
        from headway.cli import bench_self_test

        return bench_self_test.run(as_json=args.json)
    if args.url is None:
        raise ConfigError("Give the URL of the endpoint, such as http://127.0.0.1:8000.")
    import uvloop

    from headway.cli.bench_report import as_json, as_text
    from headway.lab.api import named_run, with_headers
    from headway.lab.endpoint import parse_endpoint
    from headway.lab.measurement import measure
    from headway.lab.request_headers import parse_header
    from headway.lab.stream_table import read_streams

    endpoint = with_headers(
        parse_endpoint(args.url, api_key(args.api_key_env)), [parse_header(text) for text in args.header]
    )
    options = named_run(
        load_options(args, endpoint, args.model),
        sessions=args.sessions,
        streams=None if args.streams is None else read_streams(args.streams),
    )
    if args.raw is not None:
        check_raw(args.raw)
    if args.report is not None:
        from headway.lab.html_report import check_report

        check_report(args.report)
    result = uvloop.run(measure(options) if args.no_live else _watched(options))
    try:
        if args.raw is not None:
            from headway.lab.raw_file import write_raw

            write_raw(args.raw, result, as_json(result))
    finally:  # what was measured is told, whatever became of the file
        print(json.dumps(as_json(result), indent=2) if args.json else as_text(result))
        if args.report is not None:
            from headway.lab.html_report import write_report

            write_report(result, args.report)
    return INTERRUPTED if result.interrupted else 0


async def _watched(options: "RunOptions") -> "RunResult":
    """Measure with a table on standard error that shows how it goes, where that is a terminal."""
    from headway.cli.live_screen import LiveScreen, is_possible
    from headway.lab.measurement import measure

    if not is_possible():
        return await measure(options)
    asked = ", ".join(form for form in (options.workload, options.arrival) if form is not None)
    with LiveScreen(f"{options.endpoint.authority}: {asked}") as screen:
        result = await measure(options, screen.see, on_start=screen.begin)
    if screen.error is not None:
        print(f"headway: the live table ended early: {screen.error!r}", file=sys.stderr)
    return result
