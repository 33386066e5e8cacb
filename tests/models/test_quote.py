import sys

import pytest

from headway.models.quote import quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b[31m\n", r"'a\x1b[31m\n'"),
        (None, "None"),
        (1.5, "1.5"),
        (["a", True], "['a', True]"),
        ({"a": [1, {}]}, "{'a': [1, {}]}"),
    ],
)
def test_values_are_quoted_as_python_writes_them(value: object, text: str) -> None:
    assert quoted(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "a" * 10**6,
        "\x00" * 10**6,
        10**4000,
        list(range(10**6)),
        ["a" * 50] * 50,
        {str(i): i for i in range(1000)},
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_quotation_is_long(value: object) -> None:
    assert len(quoted(value)) <= 80
    assert "..." in quoted(value)


def test_what_holds_itself_or_much_is_quoted_in_no_time() -> None:
    value: list[object] = []
    for _ in range(sys.getrecursionlimit() * 2):
        value = [value]
    assert len(quoted(value)) <= 80
