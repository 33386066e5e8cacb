"""Static limits against dynamic ones under a burst and a scan: `make bench-flow` [BENCH_ARGS="--seconds 30 --print"].

Takes a few seconds: time is virtual. Writes bench/results/DATE-flow.json and the table of docs/performance.md; with
`--print` it writes nothing and prints the table.
"""

import argparse
import json
import time
from typing import Any

from flow_control.load import LOADS, arrivals
from flow_control.render import BEGIN, END, render
from flow_control.world import LIMITERS, simulate
from peers.places import DOCUMENT, RESULTS, ROOT
from peers.render import replace_table


def measure(seconds: int, seed: int) -> dict[str, Any]:
    """Return every load's figures with every kind of limits."""
    return {
        "seconds": seconds,
        "seed": seed,
        "loads": {
            load: {limiter: simulate(limiter, arrivals(load, seconds, seed)) for limiter in LIMITERS}
            for load in LOADS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="flow_control", description="Static limits against dynamic ones.")
    parser.add_argument("--seconds", type=int, default=120, help="of virtual time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print", action="store_true", help="print the table and write nothing")
    args = parser.parse_args()
    data = {"date": time.strftime("%Y-%m-%d"), **measure(args.seconds, args.seed)}
    if args.print:
        print(render(data, "not written"))
        return
    path = RESULTS / f"{data['date']}-flow.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    replace_table(DOCUMENT, render(data, str(path.relative_to(ROOT))), BEGIN, END)


if __name__ == "__main__":
    main()
