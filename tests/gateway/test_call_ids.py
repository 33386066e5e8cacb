"""Ids of tool calls."""

import re

from headway.gateway.call_ids import NUM_KEY_BYTES, call_ids, new_call_key


def test_a_key_gives_the_same_ids_again() -> None:
    key = new_call_key()
    assert len(key) == NUM_KEY_BYTES
    first, again = call_ids(key, 1), call_ids(key, 1)
    assert [first() for _ in range(3)] == [again() for _ in range(3)]


def test_ids_look_like_openais_and_never_repeat() -> None:
    sources = [call_ids(key, choice) for key in (b"a" * 16, b"b" * 16) for choice in range(12)]
    ids = [source() for source in sources for _ in range(12)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", call_id) for call_id in ids)
