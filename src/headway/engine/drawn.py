"""What becomes of the tokens that a step drew for a sequence: pure decisions. It knows neither blocks nor events."""

from collections.abc import Sequence as ReadOnly

from headway.core.errors import HeadwayError, InternalError, InvalidRequest
from headway.core.messages import FinishReason
from headway.engine.sequence import Sequence


def count_right(draft: tuple[int, ...], drawn: ReadOnly[int]) -> int:
    """Return how many tokens of `draft`, from its beginning, are those that were drawn."""
    num_right = 0
    for guessed, token in zip(draft, drawn, strict=False):
        if guessed != token:
            break
        num_right += 1
    return num_right


def verified(draft: tuple[int, ...], drawn: ReadOnly[int]) -> tuple[int, ...]:
    """Return the tokens that stand of those `drawn` after a sequence's last token and after each one of its draft.

    A token drawn behind a draft token counts only if that one, and all before it, are what was drawn there. -1 (none could
    be drawn) counts only as the first: the step after comes to it again.
    """
    num_right = count_right(draft, drawn)
    if num_right and drawn[num_right] < 0:
        return tuple(drawn[:num_right])
    return tuple(drawn[: num_right + 1])


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
