"""A vocabulary for tests of grammars: every byte, a few longer tokens, and control tokens that end or mark text."""

from collections.abc import Sequence

END, OTHER_END, MARK = 0, 1, 2
_SPECIAL = ("<|end|>", "<|stop|>", "<|mark|>")
_WORDS = (b'{"', b'"}', b'":', b'", "', b"true", b"name", b"<tool_call>", b"</tool_call>", "é".encode())
_TOKENS = (*(s.encode() for s in _SPECIAL), *(bytes([b]) for b in range(256)), *_WORDS)


class SmallVocabulary:
    """Longest match first; ids as in `_TOKENS`. A text begins with a space when `spaces` is set, as some models do."""

    vocab_size = len(_TOKENS)
    eos_ids = (END, OTHER_END)

    def __init__(self, *, spaces: bool = False) -> None:
        self._spaces = spaces

    def token_bytes(self, token_id: int) -> bytes:
        return _TOKENS[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id < len(_SPECIAL)

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> Sequence[int]:  # noqa: ARG002 — as the real one
        left = (b" " if self._spaces else b"") + text.encode()
        ids = []
        while left:
            best = max(
                (i for i, token in enumerate(_TOKENS) if i >= len(_SPECIAL) and left.startswith(token)),
                key=lambda i: len(_TOKENS[i]),
            )
            ids.append(best)
            left = left[len(_TOKENS[best]) :]
        return ids


def allowed(mask: bytes) -> set[int]:
    """The ids that a mask allows."""
    return {8 * index + bit for index, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1}
