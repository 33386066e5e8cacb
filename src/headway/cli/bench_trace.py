"""`headway bench trace FILE`: what a trace or an access log holds, before anything of it is sent."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_options import add_bytes_per_token, require_packages

if TYPE_CHECKING:
    from headway.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "bench trace",
        help="describe a trace or an access log without sending anything",
        description="Read a trace as `headway bench --workload trace:FILE` would, and tell its arrivals, its tokens, what "
        "its prompts share, of an access log its routes and clients, and which rows cannot be read.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="Mooncake JSONL, Azure CSV, BurstGPT CSV or an access log in the combined format, gzipped or not",
    )
    add_bytes_per_token(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Describe and print; raises HeadwayError for what cannot be read."""
    require_packages()
    from headway.cli.trace_report import as_json, as_text
    from headway.lab.access_summary import summarise_access
    from headway.lab.trace import TraceFormat
    from headway.lab.trace_access_log import TokenRule
    from headway.lab.trace_facts import trace_facts
    from headway.lab.trace_replay import read_as
    from headway.lab.trace_summary import summarise_trace

    trace = read_as(args.file, None if args.bytes_per_token is None else TokenRule(*args.bytes_per_token))
    access = summarise_access(trace) if trace.format is TraceFormat.ACCESS_LOG else None
    told = (str(args.file), trace_facts(trace), summarise_trace(trace), access)
    print(json.dumps(as_json(*told), indent=2) if args.json else as_text(*told))
    return 0
