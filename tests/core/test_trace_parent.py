import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.trace_parent import TraceParent, parse_trace_parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def parsed(*values: str) -> TraceParent | None:
    return parse_trace_parent([(b"host", b"h"), *((b"traceparent", value.encode()) for value in values)])


@pytest.mark.parametrize(
    ("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("fe", False), ("ff", True)]
)
def test_a_callers_place_in_its_trace(flags: str, sampled: bool) -> None:
    assert parsed(f"00-{TRACE}-{SPAN}-{flags}") == TraceParent(int(TRACE, 16), int(SPAN, 16), sampled)


def test_a_later_version_may_say_more() -> None:
    assert parsed(f"01-{TRACE}-{SPAN}-01-what-ever") == parsed(f"00-{TRACE}-{SPAN}-01")


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
    ],
)
def test_anything_else_begins_a_trace(value: str) -> None:
    assert parsed(value) is None


def test_two_headers_begin_a_trace() -> None:
    assert parsed(f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01") is None
    assert parsed() is None


@given(st.binary(max_size=80))
def test_no_bytes_raise(value: bytes) -> None:
    parse_trace_parent([(b"traceparent", value)])
