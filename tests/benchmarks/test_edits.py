"""How edits are compared with and without speculation: whose turn it is, what is told of the runs, what is refused."""

import sys

import pytest

import edits
from edits import Run, Script, describe, quartiles, take_turns


def run(tok_s: float) -> Run:
    return Run(step_ms=[1_000 / tok_s], step_rows=[1], num_tokens=1)


def test_the_first_turn_changes_with_every_comparison() -> None:
    drafts: list[int] = []

    def decode(max_draft_tokens: int) -> Run:
        drafts.append(max_draft_tokens)
        return run(1.0)

    take_turns(decode, 8, repeat=2, first=0)
    take_turns(decode, 8, repeat=1, first=1)
    assert drafts == [0, 8, 8, 0, 8, 0]


def test_figures_say_which_side_they_are_of() -> None:
    runs = {"without": [run(10.0), run(10.0)], "with": [run(20.0), run(40.0)]}
    found = describe([Script("a", (1,), (2,))], runs)
    assert found["tok_s"] == {"without": 10.0, "with": 30.0}
    assert (found["speedup"], found["speedup_range"]) == (3.0, [2.0, 4.0])
    assert found["steps"]["without"]["ms"] == [100.0]
    assert found["steps"]["with"]["ms"] == [25.0]


def test_quartiles_lie_around_the_median() -> None:
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == {
        "smallest": 1.0,
        "lower": 2.0,
        "upper": 4.0,
        "largest": 5.0,
    }
    assert set(quartiles([2.0]).values()) == {2.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--edits 0", "whole number of at least 1"),
        ("--batch 0", "whole number of at least 1"),
        ("--repeat 0", "whole number of at least 1"),
        ("--skip 40", "leaves none of the 30 edits"),
        ("--model nope", "nope"),
        ("--model shape:nope", "There is no shape 'nope'"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_line(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["edits.py", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        edits.main()
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert message in said.strip().splitlines()[-1]
