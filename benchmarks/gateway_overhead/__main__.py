"""What the gateway costs: `make bench-gateway` [BENCH_ARGS="--rounds 1 --seconds 2 --print"].

Takes about three minutes and needs two cores that nothing else uses: the server has one, the client the other. Writes
bench/results/DATE-gateway.json and the table of docs/performance.md; with `--print` it writes nothing and prints the table.
"""

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

from gateway_overhead.measure import CLIENT_CORE, measure
from gateway_overhead.render import BEGIN, END, render
from peers.machine import describe_machine
from peers.places import DOCUMENT, RESULTS, ROOT
from peers.render import replace_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="gateway_overhead", description="What the gateway itself costs.")
    parser.add_argument("--rate", type=int, default=500, help="requests a second (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5, help="of each case and round (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="another file; then the document stays as it is")
    parser.add_argument("--print", action="store_true", help="print the table and write nothing")
    args = parser.parse_args()
    machine = describe_machine()
    os.sched_setaffinity(0, {CLIENT_CORE})
    found = asyncio.run(measure(args.rate, args.seconds, args.rounds))
    data = {"date": time.strftime("%Y-%m-%d"), "machine": machine, **found}
    if args.print:
        print(render(data, "not written"))
        return
    path = args.out or RESULTS / f"{data['date']}-gateway.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    if args.out is None:
        replace_table(DOCUMENT, render(data, str(path.relative_to(ROOT))), BEGIN, END)


if __name__ == "__main__":
    main()
