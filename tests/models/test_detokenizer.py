import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.models.detokenizer import Detokenizer
from headway.models.stop_strings import StopMatcher, StopStrings


class SomeTokens:
    """Tokens are their place in a list of bytes; None is special."""

    def __init__(self, *tokens: bytes | None) -> None:
        self._tokens = tokens

    def token_bytes(self, token_id: int) -> bytes:
        token = self._tokens[token_id]
        return b"<special>" if token is None else token

    def is_special(self, token_id: int) -> bool:
        return self._tokens[token_id] is None


def pushed(detokenizer: Detokenizer, *token_ids: int) -> list[str]:
    return [detokenizer.push(token_id) for token_id in token_ids]


def test_a_character_waits_for_its_last_byte() -> None:
    detokenizer = Detokenizer(SomeTokens(b"a\xf0\x9f", b"\x8e", b"\x89b"))
    assert pushed(detokenizer, 0, 1, 2) == ["a", "", "🎉b"]
    assert detokenizer.flush() == ""


def test_a_character_that_stays_incomplete_is_replaced_at_the_end() -> None:
    detokenizer = Detokenizer(SomeTokens(b"\xe6\x97", b"x"))
    assert pushed(detokenizer, 0) == [""]
    assert detokenizer.flush() == "\ufffd"


def test_invalid_bytes_are_replaced_as_soon_as_they_are_known_to_be() -> None:
    detokenizer = Detokenizer(SomeTokens(b"\xe6\x97", b"x", b"\xff"))
    assert pushed(detokenizer, 0, 1, 2) == ["", "\ufffdx", "\ufffd"]


def test_special_tokens_give_no_text_unless_asked_for() -> None:
    tokens = SomeTokens(b"a", None)
    assert pushed(Detokenizer(tokens), 0, 1, 0) == ["a", "", "a"]
    assert pushed(Detokenizer(tokens, skip_special=False), 0, 1, 0) == ["a", "<special>", "a"]


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(IndexError):
        Detokenizer(SomeTokens(b"a")).push(1)


@given(st.lists(st.one_of(st.binary(max_size=3), st.text(max_size=2).map(str.encode)), max_size=30))
def test_any_split_of_the_bytes_gives_the_same_text(tokens: list[bytes]) -> None:
    detokenizer = Detokenizer(SomeTokens(*tokens))
    text = "".join(pushed(detokenizer, *range(len(tokens)))) + detokenizer.flush()
    assert text == b"".join(tokens).decode(errors="replace")


@given(st.text(max_size=20), st.data())
def test_at_most_one_character_is_held_back(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    end = data.draw(st.integers(0, len(raw)))
    detokenizer = Detokenizer(SomeTokens(*(bytes([byte]) for byte in raw)))
    given_out = "".join(pushed(detokenizer, *range(end)))
    assert given_out == raw[:end].decode(errors="ignore")


# Stop strings


def through(stops: list[str] | StopStrings, *deltas: str) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    parts = [matcher.push(delta) for delta in deltas]
    return [*parts, matcher.flush()], matcher.matched_string


@pytest.mark.parametrize(
    ("stops", "deltas", "parts", "matched"),
    [
        (["STOP"], ["abc", "def"], ["abc", "def", ""], None),
        (["STOP"], ["abSTOPcd"], ["ab", ""], "STOP"),
        (["STOP"], ["ab", "cS", "T", "OP", "de"], ["ab", "c", "", "", "", ""], "STOP"),
        (["STOP"], ["abST", "ART"], ["ab", "START", ""], None),
        (["STOP"], ["abST"], ["ab", "ST"], None),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", "", ""], "\n\n"),
        (
            ["aab"],
            ["aaa", "ab"],
            ["a", "a", ""],
            "aab",
        ),  # the held text may begin a stop string in several ways
        (["abc", "b"], ["xab", "c"], ["x" + "a", "", ""], "b"),  # complete first, though it begins later
        (["bc", "abc"], ["xabc"], ["x", ""], "abc"),  # complete together: the longest
        (["abcd", "bc"], ["ab", "c"], ["", "a", ""], "bc"),  # an end within a longer one that was under way
        (["ab", "abc"], ["abc"], ["", ""], "ab"),
        (["é"], ["caf", "é!"], ["caf", "", ""], "é"),
        ([], ["anything"], ["anything", ""], None),
    ],
)
def test_cases(stops: list[str], deltas: list[str], parts: list[str], matched: str | None) -> None:
    assert through(stops, *deltas) == (parts, matched)


def first_end(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule, spelled out: the stop string that ends first, of those the longest."""
    for end in range(len(text) + 1):
        here = [stop for stop in stops if text[:end].endswith(stop)]
        if here:
            longest = max(here, key=len)
            return text[: end - len(longest)], longest
    return text, None


_STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=5)


@given(_STOPS, st.lists(st.text("ab\n", max_size=6), max_size=10))
def test_any_split_of_the_text_gives_the_same_output(stops: list[str], deltas: list[str]) -> None:
    parts, matched = through(stops, *deltas)
    assert ("".join(parts), matched) == first_end("".join(deltas), stops)


@given(_STOPS, st.lists(st.text("ab\n", max_size=6), max_size=10))
def test_what_was_let_through_holds_no_stop_string_and_no_beginning_of_one(
    stops: list[str], deltas: list[str]
) -> None:
    matcher = StopMatcher(stops)
    text = seen = ""
    for delta in deltas:
        text += matcher.push(delta)
        seen += delta
        assert not any(stop in text for stop in stops)
        if matcher.matched:
            break
        held = seen[len(text) :]
        assert seen.startswith(text)
        assert held == "" or any(stop.startswith(held) for stop in stops)
        assert not any(stop.startswith(seen[at:]) for stop in stops for at in range(len(text)))


def test_one_automaton_serves_several_choices() -> None:
    stops = StopStrings(["END"])
    first, second = StopMatcher(stops), StopMatcher(stops)
    assert first.push("a E") == "a "
    assert second.push("ND") == "ND"
    assert first.push("ND") == ""
    assert (first.matched, second.matched) == (True, False)


def test_an_empty_stop_string_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidRequest) as caught:
        StopStrings(["a", ""])
    assert caught.value.param == "stop"


def test_the_cost_of_a_character_does_not_grow_with_the_stop_strings() -> None:
    stops = StopStrings([f"{'ab' * 10}{number}" for number in range(10_000)])
    matcher = StopMatcher(stops)
    started = time.process_time()
    assert len(matcher.push("ab" * 50_000)) == 100_000 - 20
    assert time.process_time() - started < 2  # 0.03 s; one comparison per stop string would take a minute
