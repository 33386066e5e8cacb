"""The process that tries grammars: what it passes, what ends it, and that it is there again afterwards."""

import json
from collections.abc import Iterator

import pytest

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.models.grammar_trial import MAX_COMPILE_CPU_S, ByteTable, Control, GrammarTrial
from support.small_vocabulary import SmallVocabulary

VOCABULARY = SmallVocabulary()


@pytest.fixture(scope="module")
def trial() -> Iterator[GrammarTrial]:
    trial = GrammarTrial(VOCABULARY, VOCABULARY.vocab_size)
    yield trial
    trial.close()


def grammar(kind: str, source: str) -> Grammar:
    return Grammar(kind=kind, source=source, param="guided_thing")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tried",
    [
        grammar("json_schema", '{"type": "object"}'),
        grammar("regex", "(" * 200 + "a" + ")" * 200),
        grammar("lark", 'start: <|mark|> "x" <[1]>'),
        grammar("json_schema", '{"items":' * 90 + "{}" + "}" * 90),
    ],
    ids=lambda tried: tried.source[:30],
)
def test_what_compiles_comes_back(trial: GrammarTrial, tried: Grammar) -> None:
    assert trial.check(tried) == tried


def test_gbnf_comes_back_as_lark(trial: GrammarTrial) -> None:
    passed = trial.check(grammar("gbnf", 'root ::= "x=" num\nnum ::= [0-9]+'))
    assert (passed.kind, passed.param) == ("lark", "guided_thing")
    assert "start:" in passed.source


@pytest.mark.parametrize(
    ("tried", "reason"),
    [
        (grammar("regex", "(a"), "unclosed"),
        (grammar("gbnf", 'root ::= "a'), "cannot be enforced"),
        (grammar("gbnf", "other ::= [a-z]"), "root"),
        (grammar("gbnf", "root ::= " + "(" * 50_000), "recursion"),
        (grammar("lark", "start: <|nope|>"), "nope"),
        (grammar("json_schema", '{"not": {}}'), "not"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_does_not_compile_is_refused_in_the_same_process(
    trial: GrammarTrial, tried: Grammar, reason: str
) -> None:
    trial.start()
    process = trial._process
    with pytest.raises(InvalidRequest, match=reason) as caught:
        trial.check(tried)
    assert caught.value.param == "guided_thing"
    assert trial._process is process


def deep_rules(depth: int) -> str:
    """Terminals that lead to terminals; the package follows them by recursion and runs out of stack."""
    chain = "\n".join(f"A{i}: A{i + 1}" for i in range(depth))
    return f'start: A0\n{chain}\nA{depth}: "x"'


def test_what_runs_out_of_stack_ends_the_trial_and_not_us(trial: GrammarTrial) -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply") as caught:
        trial.check(grammar("lark", deep_rules(10_000)))
    assert caught.value.param == "guided_thing"
    assert trial.check(grammar("regex", "ab")).source == "ab"


def test_what_takes_too_long_is_ended_by_the_kernel(trial: GrammarTrial) -> None:
    at_once = [{"type": "string", "pattern": f"[a-z]{{{length}}}.*x"} for length in range(1, 60)]
    with pytest.raises(InvalidRequest, match=f"more than {MAX_COMPILE_CPU_S} s"):
        trial.check(grammar("json_schema", json.dumps({"allOf": at_once})))
    assert trial.check(grammar("regex", "ab")).source == "ab"


def test_one_that_was_killed_is_replaced(trial: GrammarTrial) -> None:
    trial.start()
    assert trial._process is not None
    trial._process.kill()
    trial._process.wait()
    assert trial.check(grammar("regex", "ab")).source == "ab"


def test_closing_ends_the_process() -> None:
    trial = GrammarTrial(VOCABULARY, VOCABULARY.vocab_size)
    trial.close()
    trial.start()
    process = trial._process
    assert process is not None
    trial.close()
    assert process.returncode is not None


def test_the_stand_in_has_every_byte_and_every_control_token() -> None:
    table = ByteTable(Control(400, {3: "<|a|>", 300: "<|b|>"}, (3,)))
    ids = table.encode("aé", parse_special=False, add_bos=False)
    assert b"".join(table.token_bytes(i) for i in ids) == "aé".encode()
    assert not any(table.is_special(i) for i in ids)
    assert table.token_bytes(300) == b"<|b|>"
    assert table.is_special(300)
    assert {table.token_bytes(i) for i in range(400)} >= {bytes([byte]) for byte in range(256)}
