"""Makes a whole answer of its pieces. Pure."""

from headway.client.answer import Delta, ToolCall, ToolCallDelta


class Merger:
    """An answer as far as it was handed on."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[ToolCallDelta]] = {}

    def add(self, delta: Delta) -> None:
        """Take the next piece."""
        if delta.text:
            self._text.append(delta.text)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        for call in delta.tool_calls:
            self._calls.setdefault(call.index, []).append(call)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far, in the order of their indices; the last one's arguments may be unfinished."""
        return tuple(
            ToolCall(
                id=next((piece.id for piece in pieces if piece.id), ""),
                name=next((piece.name for piece in pieces if piece.name), ""),
                arguments="".join(piece.arguments for piece in pieces),
            )
            for _, pieces in sorted(self._calls.items())
        )
