"""Grammars: what they accept and refuse, where an answer may end, and that nothing of a caller's raises anything else."""

import json
from typing import Any

import pytest

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.models.grammar import MAX_SOURCE_CHARS, GrammarVocabulary, Matcher
from support.small_vocabulary import END, MARK, OTHER_END, SmallVocabulary, allowed

VOCABULARY = SmallVocabulary()
STOPS = (END, OTHER_END)


@pytest.fixture(scope="module")
def grammars() -> GrammarVocabulary:
    return GrammarVocabulary(VOCABULARY, VOCABULARY.vocab_size)


def schema(value: dict[str, Any] | bool) -> Grammar:
    return Grammar(kind="json_schema", source=json.dumps(value))


def regex(source: str) -> Grammar:
    return Grammar(kind="regex", source=source, param="guided_regex")


def lark(source: str) -> Grammar:
    return Grammar(kind="lark", source=source, param="guided_grammar")


def follow(matcher: Matcher, text: str) -> bool:
    """Write `text` with the longest tokens that the masks allow; return whether all of it went in and may end there."""
    left = text.encode()
    while left:
        fitting = [i for i in allowed(matcher.mask()) if left.startswith(VOCABULARY.token_bytes(i))]
        if not fitting:
            return False
        token_id = max(fitting, key=lambda i: len(VOCABULARY.token_bytes(i)))
        assert matcher.advance([token_id])
        left = left[len(VOCABULARY.token_bytes(token_id)) :]
    return matcher.may_end


def finished(matcher: Matcher) -> bool:
    return matcher.is_finished


def accepts(grammars: GrammarVocabulary, grammar: Grammar, text: str) -> bool:
    return follow(grammars.compile(grammar, STOPS), text)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('{"name":"Ada","age":36}', True),
        ('{"name": "Ada", "age": 36}', True),
        ('{"name": "Ada", "age": -1}', False),
        ('{"name": "Ada"}', False),
        ('{"name":  "Ada", "age": 36}', False),
        ('{"name": "Ada",\n"age": 36}', False),
        (' {"name": "Ada", "age": 36}', False),
        ('{"name": "Ada", "age": 36}\n', False),
    ],
)
def test_a_schema_is_matched_with_at_most_one_space_between(
    grammars: GrammarVocabulary, text: str, matches: bool
) -> None:
    assert accepts(grammars, schema(PERSON), text) is matches


def test_a_schema_cannot_loosen_how_it_is_enforced(grammars: GrammarVocabulary) -> None:
    loose = {"type": "object", "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": r"\s+"}}
    assert accepts(grammars, schema(loose), '{"a": 1}')
    assert not accepts(grammars, schema(loose), '{\n"a": 1}')
    with pytest.raises(InvalidRequest, match="not"):
        grammars.compile(schema({"not": {"type": "string"}, "x-guidance": {"lenient": True}}), STOPS)


@pytest.mark.parametrize(
    ("source", "text", "matches"),
    [
        ("[a-z]{2,3}[0-9]", "ab1", True),
        ("[a-z]{2,3}[0-9]", "a1", False),
        ("(yes|no)", "no", True),
        ("(yes|no)", "nope", False),
        ("é+", "éé", True),
    ],
)
def test_a_regex_is_for_the_whole_answer(
    grammars: GrammarVocabulary, source: str, text: str, matches: bool
) -> None:
    assert accepts(grammars, regex(source), text) is matches


TOOL_CALLS = """
start: call* tail
tail: TEXT
TEXT: /(.|\\n)*/
head[lazy]: TEXT "<tool_call>"
call: head "\\n" body "\\n</tool_call>"
body: %json {"x-guidance": {"whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?"},
  "anyOf": [
    {"type": "object", "properties": {"name": {"const": "add"}, "arguments": {"type": "object",
      "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}},
      "required": ["name", "arguments"], "additionalProperties": false},
    {"type": "object", "properties": {"name": {"const": "say"}, "arguments": {"type": "object",
      "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false}},
      "required": ["name", "arguments"], "additionalProperties": false}]}
"""
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
SAY = '<tool_call>\n{"name": "say", "arguments": {"text": "hello"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("No tool is needed: 1 < 2, <tool>.\n", True),
        (ADD, True),
        (f"I will add.\n{ADD}\n{SAY}", True),
        (f"{ADD}and then", True),
        ('<tool_call>\n{"name": "add", "arguments": {"a": "one"}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "sub", "arguments": {"a": 1}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "add"', False),
        ("<tool_call>", False),
    ],
)
def test_text_with_calls_in_it(grammars: GrammarVocabulary, text: str, matches: bool) -> None:
    assert accepts(grammars, lark(TOOL_CALLS), text) is matches


def test_a_call_can_be_demanded(grammars: GrammarVocabulary) -> None:
    demanded = lark(TOOL_CALLS.replace("start: call* tail", "start: call+"))
    assert not accepts(grammars, demanded, "")
    assert not accepts(grammars, demanded, "I would rather not.")
    assert accepts(grammars, demanded, f"Well: {ADD}")
    only = lark(TOOL_CALLS.replace("start: call* tail", 'start: "<tool_call>" "\\n" body "\\n</tool_call>"'))
    assert accepts(grammars, only, SAY)
    assert not accepts(grammars, only, f" {SAY}")


def test_a_marker_may_be_written_with_its_own_token(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(lark(TOOL_CALLS), STOPS)
    marker = VOCABULARY.encode("<tool_call>")
    assert len(marker) == 1
    assert set(marker) <= allowed(matcher.mask())
    assert matcher.advance([*marker, *VOCABULARY.encode("\n")])
    assert not matcher.may_end


def test_control_tokens_are_allowed_only_where_the_grammar_names_them(grammars: GrammarVocabulary) -> None:
    assert MARK not in allowed(grammars.compile(lark("start: /(.|\\n)*/"), STOPS).mask())
    matcher = grammars.compile(lark('start: <|mark|> "x"'), STOPS)
    assert allowed(matcher.mask()) == {MARK}
    assert matcher.advance([MARK, *VOCABULARY.encode("x")])
    assert finished(matcher)


def test_every_end_of_the_request_is_allowed_where_the_grammar_may_end(grammars: GrammarVocabulary) -> None:
    for stops, ends in (((END, OTHER_END, 99), {END, OTHER_END}), ((END,), {END}), ((), set())):
        matcher = grammars.compile(regex("ab*"), stops)
        assert not allowed(matcher.mask()) & {END, OTHER_END}
        matcher.advance(list(VOCABULARY.encode("a")))
        assert allowed(matcher.mask()) == ends | set(VOCABULARY.encode("b"))
        assert matcher.may_end
        assert not finished(matcher)


def test_it_is_finished_when_nothing_can_be_added(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(schema({"type": "object"}), STOPS)
    assert not follow(matcher, '{"a": {}')
    assert not finished(matcher)
    assert follow(matcher, "}")
    assert finished(matcher)
    assert matcher.error is None
    empty = grammars.compile(regex(""), ())
    assert allowed(empty.mask()) == set()
    assert finished(empty)


def test_several_tokens_at_once_and_back_again(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(schema(PERSON), STOPS)
    first = matcher.mask()
    tokens = list(VOCABULARY.encode('{"name": "Ada", "age": 3}'))
    assert matcher.advance(tokens)
    assert finished(matcher)
    matcher.rollback(len(tokens))
    assert not finished(matcher)
    assert matcher.mask() == first
    assert matcher.advance(tokens[:4])


def test_a_copy_goes_its_own_way(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(regex("[ab]c"), STOPS)
    copy = matcher.copy()
    assert follow(copy, "ac")
    assert finished(copy)
    assert not matcher.may_end
    assert follow(matcher, "bc")


def test_a_token_that_does_not_match_is_an_error_from_then_on(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(regex("ab"), STOPS)
    assert not matcher.advance(list(VOCABULARY.encode("x")))
    assert matcher.error is not None
    assert matcher.error.param == "guided_regex"
    assert allowed(matcher.mask()) == set()
    assert not finished(matcher)
    assert not matcher.may_end


def test_ids_without_a_token_are_never_allowed() -> None:
    size = VOCABULARY.vocab_size + 40
    matcher = GrammarVocabulary(VOCABULARY, size).compile(lark("start: /(.|\\n)*/"), STOPS)
    mask = matcher.mask()
    assert len(mask) == -(-size // 32) * 4
    assert max(allowed(mask)) < VOCABULARY.vocab_size


def test_what_is_forced_is_spelled_as_the_tokenizer_would() -> None:
    for spaces in (False, True):
        matcher = GrammarVocabulary(SmallVocabulary(spaces=spaces), VOCABULARY.vocab_size).compile(
            regex("<tool_call>true"), STOPS
        )
        assert allowed(matcher.mask()) == {VOCABULARY.encode("<tool_call>")[0]}
        assert matcher.advance(list(VOCABULARY.encode("<tool_call>true")))
        assert finished(matcher)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (schema({"not": {"type": "string"}}), "not"),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"type": "string", "format": "colour"}), "colour"),
        (schema({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (schema({"type": "thing"}), "thing"),
        (schema({"$ref": "http://example.invalid/schema"}), "retriev"),
        (schema({"type": "string", "minLength": 2, "maxLength": 1}), "Unsatisfiable"),
        (schema(True), "object"),
        (Grammar(kind="json_schema", source="{"), "response_format"),
        (regex("(a"), "unclosed"),
        (regex(r"(a)\1"), "backreference"),
        (lark('begin: "a"'), "start"),
        (lark("start: NOWHERE"), "NOWHERE"),
        (lark('start: <|nope|> "a"'), "nope"),
        (lark(""), "guided_grammar"),
        (lark("start: /" + "a" * MAX_SOURCE_CHARS + "/"), "characters"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(
    grammars: GrammarVocabulary, grammar: Grammar, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        grammars.compile(grammar, STOPS)
    assert caught.value.param == grammar.param
    assert len(caught.value.message) < 600
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("grammar", [schema({"$ref": "#"}), regex(r"[^\s\S]"), lark('start: start "a"')])
def test_what_nothing_matches_is_refused_in_words(grammars: GrammarVocabulary, grammar: Grammar) -> None:
    matcher = grammars.compile(grammar, STOPS)
    assert not any(matcher.mask())
    assert matcher.error is not None
    assert matcher.error.message.endswith("no text that the model can write matches it.")


AMBIGUOUS = lark('start: e\ne: e "+" e | e e | /[a-z]/ | "(" e ")"')


def test_a_grammar_that_explodes_ends_in_an_error(grammars: GrammarVocabulary) -> None:
    matcher = grammars.compile(AMBIGUOUS, STOPS)
    letter = list(VOCABULARY.encode("a"))
    for _ in range(200):
        if not any(matcher.mask()):
            break
        matcher.advance(letter)
    assert matcher.error is not None
    assert "Too many items" in matcher.error.message
    assert not finished(matcher)
