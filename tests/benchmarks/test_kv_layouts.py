"""How KV layouts are compared: what the memory and the context must hold."""

import sys

import pytest

import kv_layouts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sequences 0", "whole number of at least 1"),
        ("--repeat 0", "whole number of at least 1"),
        ("--max-context 100", "shorter than a chunk of 256"),
        ("--max-context 300", "together 560, exceed --max-context 300"),
        ("--max-context 1000 --kv-tokens 1008", "at least 1024"),
        ("--kv-tokens 100", "at least 1024"),
        ("--model nope", "nope"),
        ("--model shape:nope", "There is no shape 'nope'"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_line(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kv_layouts.py", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        kv_layouts.main()
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert message in said.strip().splitlines()[-1]
