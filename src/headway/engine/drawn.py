"""What becomes of the tokens that a step drew for a sequence: pure decisions. It knows neither blocks nor events."""

from headway.core.errors import HeadwayError, InternalError, InvalidRequest
from headway.core.messages import FinishReason
from headway.engine.sequence import Sequence


def accept(sequence: Sequence, drawn: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """Return the drawn tokens that count, and why the choice ends with them, if it does."""
    request = sequence.request
    for position, token in enumerate(drawn):
        if (
            token < 0 or token in request.stop_token_ids
        ):  # no token: its grammar allows nothing after the last one
            return drawn[:position], "stop"
        if sequence.num_output + position + 1 >= request.max_tokens:
            return drawn[: position + 1], "length"
    return drawn, None


def no_token(sequence: Sequence) -> HeadwayError:
    """Return why no token could be drawn."""
    grammar, matcher = sequence.request.grammar, sequence.matcher
    if grammar is None or matcher is None:
        return InternalError("The model gave no token for this request; send it again.")
    return matcher.error or InvalidRequest(
        f"No token of the model's vocabulary can go on as `{grammar.param}` asks; change it.",
        param=grammar.param,
    )
