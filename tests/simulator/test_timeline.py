"""The order in which things happen."""

from functools import partial

import pytest

from headway.simulator.timeline import Kind, Timeline


def test_things_happen_by_time_then_kind_then_as_they_were_planned() -> None:
    timeline, seen = Timeline(), list[str]()
    for name, at_ns, kind in (
        ("step", 5, Kind.STEP),
        ("second", 5, Kind.ARRIVE),
        ("third", 5, Kind.ARRIVE),
        ("first", 5, Kind.DELIVER),
        ("before", 4, Kind.STEP),
    ):
        timeline.at(at_ns, kind, partial(seen.append, name))
    timeline.run()
    assert seen == ["before", "first", "second", "third", "step"]
    assert timeline.now_ns == 5


def test_nothing_is_planned_in_the_past() -> None:
    timeline = Timeline()
    timeline.at(5, Kind.STEP, lambda: timeline.at(4, Kind.STEP, lambda: None))
    with pytest.raises(ValueError, match="1 ns too late"):
        timeline.run()
