"""`headway bench --self-test`: whether this client, on this machine, may be believed."""

import json
import os
from collections.abc import Iterator
from typing import TextIO

from headway.cli.live_screen import LiveScreen, is_possible
from headway.cli.table import aligned
from headway.core.clock import NS_PER_S
from headway.core.errors import InternalError
from headway.lab.self_test import STREAM, STREAMS, SelfTest, self_test

_FAILED = 1


def run(*, as_json: bool) -> int:
    """Measure the client and print what was found; return 1 if it is not to be believed here."""
    import uvloop

    with open(os.devnull, "w") as nowhere:
        found = uvloop.run(_watched(None if is_possible() else nowhere))
    if as_json:
        print(json.dumps(_json(found), indent=2))
    else:
        print("\n".join(_lines(found)))
    return 0 if found.passed else _FAILED


async def _watched(terminal: TextIO | None) -> SelfTest:
    """Measure the client as it measures: with the live table, on standard error or on what is given."""
    with LiveScreen("the client itself", terminal) as screen:
        found = await self_test(screen.see)
    if screen.error is not None:
        raise InternalError(f"The live table failed: {screen.error!r}.")
    return found


def _json(found: SelfTest) -> dict[str, object]:
    return {
        "passed": found.passed,
        "floor_ms": {"p50": found.floor_p50_ms, "p99": found.floor_p99_ms},
        "ttft_error_ms": found.ttft_error_ms,
        "itl_error_ms": found.itl_error_ms,
        "events_s": found.events_s,
        "delivered_rate": found.delivered_rate,
        "rate_lag_p99_ms": found.rate_lag_p99_ms,
    }


def _lines(found: SelfTest) -> Iterator[str]:
    yield (
        f"The client stamps tokens {found.floor_p50_ms:.2g} ms late (p50; p99 {found.floor_p99_ms:.2g} ms) with "
        f"{STREAMS} streams of {NS_PER_S // STREAM.itl_ns} tokens/s, and could stamp {found.events_s:,.0f} tokens/s a core."
    )
    if not found.passed:
        yield "Do not believe what it measures here: stop what else runs on this machine, and try again."
    yield ""
    rows = [("", "measured", "limit", "")]
    rows += [
        (
            limit.name,
            f"{limit.value:,.3g}" if limit.value < 1_000 else f"{limit.value:,.0f}",
            f"{'at least' if limit.at_least else 'at most'} {limit.limit:,g}",
            "" if limit.kept else "not kept",
        )
        for limit in found.limits()
    ]
    yield from aligned(rows, "<><<")
