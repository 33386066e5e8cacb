"""The command: the conversations in every way, by turns, on a server of its own; then the table."""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from endpoints.__main__ import demo_model
from endpoints.process import ServerFailed, leave_on_sigterm, running
from endpoints.servers import Server, headway
from headway.cli.options import positive
from headway.core.errors import HeadwayError
from peers.__main__ import output_of
from peers.lock import Held, only_run
from peers.machine import describe_machine
from peers.places import DOCUMENT, RESULTS, ROOT, default_cache
from peers.record import Record
from peers.render import replace_table
from prompts.play import TIMEOUT_S, play
from prompts.render import BEGIN, END, render
from prompts.scripts import scripts
from prompts.topics import TOPICS
from prompts.ways import WAYS

STEPS = ("measure", "render")
PROFILE = """
role = "You are a careful programmer who answers briefly and names files, functions and limits exactly."
domain = "A large program in Python, worked on by several teams."
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="prompts", description="Compare ways of building prompts.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)} (default: all)")
    parser.add_argument(
        "--conversations",
        type=positive,
        default=len(TOPICS),
        metavar="N",
        help="the first N of %(default)s, to try it",
    )
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs"
    )
    parser.add_argument("--headway", default=str(ROOT / ".venv/bin/headway"), help="the command that serves")
    parser.add_argument("--out", type=Path, help="results file (default: today's)")
    return parser.parse_args()


def main() -> int:
    leave_on_sigterm()
    args = parse_arguments()
    steps = args.steps or STEPS
    if unknown := set(steps) - set(STEPS):
        sys.exit(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    path = (args.out or RESULTS / f"{time.strftime('%Y-%m-%d')}-prompts.json").resolve()
    try:
        with only_run(default_cache()) if "measure" in steps else nullcontext():
            if "measure" in steps:
                measure(args, path)
    except (Held, ServerFailed, HeadwayError, FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    if "render" in steps and path.is_relative_to(ROOT):  # a try elsewhere changes no document
        replace_table(DOCUMENT, render(Record(path).data, str(path.relative_to(ROOT))), BEGIN, END)
    return 0


def measure(args: argparse.Namespace, path: Path) -> None:
    """Play every conversation in every way and write the results file anew."""
    demo_model(args.headway)
    path.unlink(missing_ok=True)
    record = Record(path)
    with TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.toml"
        profile.write_text(PROFILE)
        server = headway(args.headway, args.threads, ("--trust-headers", "--profile", str(profile)))
        record.describe(facts(args, server))
        with running(server, Path(folder) / "server.log") as port:
            asyncio.run(play_all(f"http://127.0.0.1:{port}", args.conversations, record))


async def play_all(url: str, num_conversations: int, record: Record) -> None:
    """Play by turns: each conversation in every way, in another order each time, none with another's cache."""
    for way in WAYS:
        record.cases[way] = {"title": WAYS[way].title, "runs": {"all": []}}
    names = list(WAYS)
    for number, script in enumerate(scripts(num_conversations)):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            headers = {"x-headway-tenant": name}
            async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as http:
                played = await play(http, script, WAYS[name])
            record.cases[name]["runs"]["all"].append(played)
            record.save()
            told = " ".join(f"{turn['ttft_ms']:,.0f}" for turn in played["turns"])
            print(f"{number + 1:2} {WAYS[name].title:32} TTFT {told} ms", file=sys.stderr, flush=True)


def facts(args: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Return what the results file says besides results."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "threads": args.threads,
        "settings": {"conversations": args.conversations},
        "machine": describe_machine(),
        "headway": {
            "version": output_of([args.headway, "--version"]).strip(),
            "commit": commit.stdout.strip() or None,
        },
        "models": {},
        "servers": {server.name: server.shown()},
    }


if __name__ == "__main__":
    sys.exit(main())
