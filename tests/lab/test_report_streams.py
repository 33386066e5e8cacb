"""What the page says of streams."""

from dataclasses import replace

from headway.lab.report_streams import streams_section
from support.lab_runs import answered, result_of, usual_run


def test_a_run_of_one_load_says_nothing() -> None:
    assert streams_section(usual_run()) is None


def test_streams_that_had_work_waiting_are_told_their_shares() -> None:
    run = [
        replace(answered(0, ttft_ms=200 * (index + 1), prompt_tokens=tokens, conversation=index), stream=name)
        for name, tokens in (("a", 95), ("b", 295))
        for index in range(30)
    ]
    section = streams_section(result_of(run))
    assert section is not None
    assert "1 times 5 seconds" in section.text[1]
    assert "0.5 where one got all" in section.text[1]
    assert section.table is not None
    assert [(row[0], row[1], row[-1]) for row in section.table.rows] == [
        ("a", "30", "25.0%"),
        ("b", "30", "75.0%"),
    ]
    assert {len(row) for row in section.table.rows} == {len(section.table.head)}


def test_streams_that_never_all_waited_say_so() -> None:
    section = streams_section(result_of([replace(answered(), stream=name) for name in ("a", "b")]))
    assert section is not None
    assert "never all had work waiting" in section.text[1]
