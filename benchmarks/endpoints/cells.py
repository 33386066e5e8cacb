"""What is measured: workloads by arrivals, each with as few requests as a run of half an hour has room for.

Sizes are for two cores that read a prompt at 600 to 2,000 tokens a second. Poisson rates are below what the slowest
server can do, so that a figure does not grow with the length of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

OUTPUT_TOKENS = 32
MIXED = "mixed:light=0.5,medium=0.3,multi-turn=0.2"
"""Half small questions, and long prompts that they must not wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of `headway bench`: conversations begin until there are so many `requests`.

    `turn` is the one whose latency is told, None: all.
    """

    workload: str
    arrival: str
    requests: int
    turn: int | None = None

    @property
    def name(self) -> str:
        """What the results call it."""
        return f"{self.workload.split(':')[0]} {self.arrival}"

    @property
    def title(self) -> str:
        """What the tables call the workload."""
        return "fifth turn" if self.turn == 5 else self.workload.split(":")[0]


def _cells(workload: str, sizes: Sequence[tuple[str, int]], turn: int | None = None) -> tuple[Cell, ...]:
    return tuple(
        Cell(workload=workload, arrival=arrival, requests=requests, turn=turn) for arrival, requests in sizes
    )


CELLS = (
    *_cells("light", (("closed:1", 8), ("closed:4", 16), ("closed:8", 24), ("poisson:2", 16))),
    *_cells("medium", (("closed:1", 2), ("closed:4", 4), ("closed:8", 8), ("poisson:0.15", 3))),
    *_cells(
        "multi-turn", (("closed:1", 5), ("closed:4", 20), ("closed:8", 40), ("poisson:0.15", 15)), turn=5
    ),
    *_cells(MIXED, (("closed:1", 7), ("closed:4", 12), ("closed:8", 16), ("poisson:0.3", 9))),
)


def at_most(cell: Cell, requests: int | None) -> Cell:
    """Return the cell with no more than `requests`, but for the turns that a conversation has left."""
    return cell if requests is None else replace(cell, requests=min(cell.requests, requests))


def find_cells(names: str | None) -> tuple[Cell, ...]:
    """Return the cells of these workloads, separated by commas, in their own order; raises ValueError."""
    if names is None:
        return CELLS
    workloads = {cell.workload.split(":")[0] for cell in CELLS}
    asked = set(names.split(","))
    if unknown := asked - workloads:
        raise ValueError(
            f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(sorted(workloads))}"
        )
    return tuple(cell for cell in CELLS if cell.workload.split(":")[0] in asked)


def seed(cell: Cell, number: int) -> int:
    """Return the seed of a cell in a round, counted from 0.

    No two are alike, so that no server answers from its cache what it saw in an earlier cell; all servers get the same.
    """
    order = [(known.workload, known.arrival) for known in CELLS]
    return 1000 * (number + 1) + order.index((cell.workload, cell.arrival))


def rotated(sides: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the sides in the order of a round: A B C, then B C A, then C A B."""
    first = number % len(sides)
    return (*sides[first:], *sides[:first])
