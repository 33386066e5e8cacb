"""What is asked: the mix that every server gets, as the lab's streams. Values only.

Small questions, questions about a file that was read before, and conversations; eight tenants, each with a file and
conversations of its own. A fresh file of 300 lines takes longer to read than the limit on TTFT allows, on this machine and
with any of the servers, alone and idle: so each file is read once before anything is measured, as by an editor that asks
about what is open, and conversations begin with 30 lines, so that their first turns can be on time. Every fifth turn has
some six hundred tokens behind it, which were read when they were said.
"""

from collections.abc import Sequence
from typing import Any

TTFT_MS = 480
ITL_MS = 50
SLO = f"ttft={TTFT_MS}ms,itl={ITL_MS}ms"

TENANTS = tuple(f"t{number}" for number in range(1, 9))
OUTPUT_TOKENS = 32

LIGHT, FILE, TALK = 0.5, 0.3, 0.2
"""Shares of requests; a conversation is five of them, so that 4 of 100 requests are fresh code."""
TURNS = 5
TALK_LINES = 30

_FILE_WORKLOAD = "shared-prefix:1:10000"
_SEEDS_PER_TENANT = 10
_SKIP_PER_RUN = 300
"""Conversations of a tenant that no run exceeds: each run's are its own, and only files are asked about again."""

Stream = dict[str, Any]


def mix(
    rate: float,
    seconds: float,
    *,
    run: int,
    group: str = "all",
    tenants: Sequence[str] = TENANTS,
    **named: object,
) -> list[Stream]:
    """Return the mix at `rate` requests per second over all `tenants`, for so many `seconds`.

    `run` counts a server's runs from 0; `named` is in whose name it is asked: `class`, `ttft_ms`, `itl_ms`.
    """
    each = rate / len(tenants)
    shared = {"duration_s": seconds, "output_tokens": OUTPUT_TOKENS, "skip": run * _SKIP_PER_RUN, **named}
    streams: list[Stream] = []
    for tenant in tenants:
        single = {
            "name": f"{group}/{tenant}",
            "workload": f"mixed:light={LIGHT},{_FILE_WORKLOAD}={FILE}",
            "arrival": f"poisson:{each * (LIGHT + FILE):.6g}",
            "seed": file_seed(tenant),
            "tenant": tenant,
        }
        talk = {
            "name": f"{group}/{tenant}/talk",
            "workload": f"multi-turn:{TURNS}",
            "lines": TALK_LINES,
            "arrival": f"poisson:{each * TALK / TURNS:.6g}",
            "seed": file_seed(tenant) + 1,
            "tenant": tenant,
            "sessions": True,
        }
        streams += [single | shared, talk | shared]
    return streams


def reading(tenants: Sequence[str] = TENANTS) -> list[Stream]:
    """Return one question about each tenant's file, which the server reads for it."""
    return [
        {
            "name": f"read/{tenant}",
            "workload": _FILE_WORKLOAD,
            "arrival": "closed:1",
            "requests": 1,
            "output_tokens": 1,
            "seed": file_seed(tenant),
            "tenant": tenant,
            "ttft_ms": 600_000,
        }
        for tenant in tenants
    ]


def file_seed(tenant: str) -> int:
    """Return the seed that chooses a tenant's file."""
    return _SEEDS_PER_TENANT * (1 + TENANTS.index(tenant))
