"""Both halves of a stream, joined by an adversary: the client's text is the engine's, or a beginning of it and an error."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.streams.limits import StreamLimits
from support.stream_logs import KINDS, open_gateways
from support.stream_world import EVERYTHING, SELDOM, World

LIMITS = StreamLimits(max_events=3, lease_ms=1000)
NUM_EXAMPLES = {"memory": 500, "sqlite": 60, "redis": 20}

happenings = st.lists(st.sampled_from(EVERYTHING), min_size=60, max_size=160)
seldom = st.sampled_from(SELDOM)


async def play(world: World, happened: list[str]) -> None:
    await world.begin()
    for name in happened:
        await getattr(world, f"do_{name}")()
        world.check()
    await world.settle()


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_does_not_fail_arrives_whole(kind: str) -> None:
    @settings(max_examples=NUM_EXAMPLES[kind])
    @given(happenings)
    def survives(happened: list[str]) -> None:
        world = run(kind, happened)
        assert world.client.is_whole

    survives()


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_fails_or_begins_anew_is_whole_or_a_beginning_and_a_typed_error(kind: str) -> None:
    @settings(max_examples=NUM_EXAMPLES[kind])
    @given(
        happenings,
        st.lists(st.tuples(st.integers(0, 12) | st.integers(0, 120), seldom), min_size=1, max_size=2),
    )
    def ends_well(happened: list[str], failures: list[tuple[int, str]]) -> None:
        for place, failure in failures:
            happened.insert(place, failure)
        world = run(kind, happened)
        assert world.client.is_whole or world.client.error in {"told", "resync_required"}

    ends_well()


def test_what_an_old_connection_still_brings_is_not_joined_to_a_new_numbering() -> None:
    old = ["step", "attach", "pump", "disconnect"]
    new = ["begin_anew", "step", "step", "attach", "pump", "pump"]
    world = run("memory", [*old, *new, *["deliver"] * 6])
    assert (world.client.text, world.client.error) == ("<role>0a ", "resync_required")


def run(kind: str, happened: list[str]) -> World:
    async def run_it(folder: Path) -> World:
        async with open_gateways(kind, folder, LIMITS) as gateways:
            world = World(gateways)
            await play(world, happened)
            return world

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_it(Path(folder)))
