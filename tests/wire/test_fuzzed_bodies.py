"""Bodies that fuzzing found (fuzz/fuzz_json.py), as small as they get: each once raised something else than a refusal."""

from collections.abc import Callable

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import parse_chat
from headway.wire.completion_request import parse_completion


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (parse_completion, b'{"prompt":"a","guided_json":{"a":"\xff"}}'),  # UnicodeDecodeError
    ],
)
def test_what_fuzzing_found_is_refused(parse: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert "\n" not in caught.value.message


def test_a_chat_with_broken_utf_8_in_a_schema_is_refused_too() -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        parse_chat(b'{"messages":[{"role":"user","content":"a"}],"guided_json":{"a":"\xff"}}')
