"""The smallest tokenizer there is: one token per byte, 256 ends an answer; and a chat template to go with it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headway.core.errors import InvalidRequest

EOS_ID = 256


class ByteTokenizer:
    """Token id = byte value."""

    eos_ids: tuple[int, ...] = (EOS_ID,)

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> list[int]:
        del parse_special, add_bos
        return list(text.encode())

    def encode_continuation(self, text: str) -> list[int]:
        return list(text.encode())

    def min_num_tokens(self, text: str) -> int:
        return len(text)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        del skip_special
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b"<end>"

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256


class PlainTemplate:
    """`role: content` lines; the role order is the caller's affair."""

    source = ""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        del tools, extra
        if messages[0]["content"] == "refuse me":
            raise InvalidRequest("The template refuses this conversation.", param="messages")
        return "".join(f"{message['role'][0]}:{message['content']}\n" for message in messages)
