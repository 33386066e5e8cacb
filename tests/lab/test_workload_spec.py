"""The command line's forms of workloads, and what is said of those that are none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import ConfigError
from headway.lab.workload_spec import (
    Context,
    Light,
    Medium,
    Mixed,
    MultiTurn,
    SharedPrefix,
    TraceFile,
    Workload,
    parse_workload,
)


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        ("light", Light()),
        ("medium", Medium(300)),
        ("medium:repeat", Medium(300, repeat=True)),
        ("multi-turn", MultiTurn(5, 100)),
        ("multi-turn:8", MultiTurn(8, 100)),
        ("multi-turn:8:repeat", MultiTurn(8, 100, repeat=True)),
        ("shared-prefix:4:25", SharedPrefix(4, 25, 300)),
        ("context:512", Context((512,))),
        ("context:2k,4K,1m:repeat", Context((2048, 4096, 1048576), repeat=True)),
        ("mixed:light=0.5", Mixed(((Light(), 0.5),))),
        ("mixed:light=0.5,medium=0.3", Mixed(((Light(), 0.5), (Medium(300), 0.3)))),
        (
            "mixed:context:2k,4k=2,light=1,shared-prefix:2:3=1e-1",
            Mixed(((Context((2048, 4096)), 2.0), (Light(), 1.0), (SharedPrefix(2, 3, 300), 0.1))),
        ),
        ("trace:logs/a:b,c=d.csv", TraceFile(Path("logs/a:b,c=d.csv"))),
    ],
)
def test_a_form_is_read(text: str, workload: Workload) -> None:
    assert parse_workload(text) == workload


def test_lines_stand_in_for_each_forms_own() -> None:
    assert parse_workload("medium", lines=20) == Medium(20)
    assert parse_workload("multi-turn", lines=20) == MultiTurn(5, 20)
    assert parse_workload("mixed:shared-prefix:1:2=1,medium=1", lines=20) == Mixed(
        ((SharedPrefix(1, 2, 20), 1.0), (Medium(20), 1.0))
    )
    assert parse_workload("mixed:light=1,medium=1", lines=20) == Mixed(((Light(), 1.0), (Medium(20), 1.0)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no workload ''"),
        ("heavy", "no workload 'heavy'"),
        ("light:repeat", "no workload"),
        ("medium:300", "no workload"),
        ("multi-turn:0", "from 1 to"),
        ("multi-turn:five", "whole number"),
        ("shared-prefix", "no workload"),
        ("shared-prefix:4", "no workload"),
        ("shared-prefix:4:0", "from 1 to"),
        ("shared-prefix:4:99999999", "from 1 to"),
        ("context:", "context's length"),
        ("context:2k,", "context's length"),
        ("context:63", "context's length"),
        ("context:2g", "context's length"),
        ("context:-5", "context's length"),
        ("mixed:", "needs a weight"),
        ("mixed:light", "needs a weight"),
        ("mixed:light=0.5,", "needs a weight"),
        ("mixed:light=0.5,medium", "needs a weight"),
        ("mixed:light=0", "over 0"),
        ("mixed:light=nan", "over 0"),
        ("mixed:light=inf", "over 0"),
        ("mixed:light=much", "over 0"),
        ("mixed:mixed:light=1", "no workload"),
        ("mixed:trace:file=1", "no workload"),
        ("trace:", "needs its file"),
        ("trace", "needs its file"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        parse_workload(text)
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize("lines", [0, -1, 2_000_000])
def test_lines_out_of_range_are_refused(lines: int) -> None:
    with pytest.raises(ConfigError, match="lines of code"):
        parse_workload("medium", lines=lines)


@pytest.mark.parametrize("text", ["light", "context:2k", "mixed:light=1,context:2k=1", "trace:file"])
def test_lines_without_a_use_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no use for it"):
        parse_workload(text, lines=20)


@given(st.text(alphabet="light:,=0.5kmedux-trncpqs\n٣", max_size=30))
def test_no_text_ends_in_anything_but_a_workload_or_a_refusal(text: str) -> None:
    try:
        workload = parse_workload(text)
    except ConfigError as refusal:
        message = refusal.message
    else:
        message = repr(workload)
        assert isinstance(workload, Light | Medium | MultiTurn | SharedPrefix | Context | Mixed | TraceFile)
    assert len(message.splitlines()) == 1
