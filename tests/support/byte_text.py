"""The smallest tokenizer there is: one token per byte, 256 ends an answer; and a chat template to go with it."""

import codecs
from collections.abc import Mapping, Sequence

from headway.core.errors import InvalidRequest

EOS_ID = 256


class ByteTokenizer:
    """Token id = byte value."""

    eos_ids = (EOS_ID,)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""


class PlainTemplate:
    """`role: content` lines; the role order is the caller's affair."""

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        if messages[0]["content"] == "refuse me":
            raise InvalidRequest("The template refuses this conversation.", param="messages")
        return "".join(f"{message['role'][0]}:{message['content']}\n" for message in messages)


class ByteDetokenizer:
    """Gives a character out when its bytes are complete."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(bytes([token_id]))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class SimpleStopMatcher:
    """Holds back the longest end of the text that begins a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.matched = False
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> str:
        if self.matched:
            return ""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.matched, self._held = True, ""
            return text[: min(found)]
        hold = max(
            size
            for stop in self._stops
            for size in range(len(stop))
            if size <= len(text) and text.endswith(stop[:size])
        )
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return "" if self.matched else held
