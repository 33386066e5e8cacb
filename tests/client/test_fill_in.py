import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.fill_in import (
    MAX_PREFIX_CHARS,
    MAX_SUFFIX_CHARS,
    CodeContext,
    ask_fill_in,
    code_of,
    near,
)


def test_short_files_go_whole() -> None:
    ask = ask_fill_in(CodeContext(prefix="a = ", suffix="\nb", path="x.py"), {"max_tokens": 5})
    assert (ask.path, ask.fields) == ("/completions", {"prompt": "a = ", "suffix": "\nb", "max_tokens": 5})
    assert ask.instead is not None
    assert (ask.instead.path, ask.instead.fields["max_tokens"]) == ("/chat/completions", 5)
    assert "x.py:\na = <|cursor|>\nb" in str(ask.instead.fields["messages"]).replace("\\n", "\n")


@given(st.text(alphabet="ab\n", max_size=200), st.integers(0, 20_000), st.text(alphabet="ab\n", max_size=50))
def test_of_long_files_goes_what_is_near(start: str, num_lines: int, typed: str) -> None:
    file = start + "x = 1\n" * num_lines + typed
    prefix, suffix = near(file, file)
    assert file.endswith(prefix)
    assert file.startswith(suffix)
    assert len(prefix) <= MAX_PREFIX_CHARS
    assert len(suffix) <= MAX_SUFFIX_CHARS
    if len(file) > MAX_PREFIX_CHARS + 10:
        assert len(prefix) >= MAX_PREFIX_CHARS - 2000 - 200


def test_what_begins_a_long_prefix_stays_while_somebody_types() -> None:
    file = "".join(f"line {number}\n" for number in range(2000))
    beginnings = {near(file + "x" * num_typed, "")[0][:100] for num_typed in range(1000)}
    assert len(beginnings) <= 2


@pytest.mark.parametrize(
    ("prefix", "answer", "code"),
    [
        ("x = ", "1", "1"),
        ("", "```python\nx = 1\n```", "x = 1"),
        ("", "Here it is:\n```\nx = 1\n```\nIt sets x.", "x = 1"),
        ("", "```python\nx = 1", "x = 1"),
        ("def f(a):\n    return ", "def f(a):\n    return a", "a"),
        ("def f(a):\n    return ", "return a", "a"),
        ("x = ", "  y", "  y"),
        ("a\n", "a\nb", "b"),
        ("", "", ""),
    ],
)
def test_what_of_a_chats_answer_is_code(prefix: str, answer: str, code: str) -> None:
    assert code_of(prefix, answer) == code
