"""How a request goes on after its engine ended: from its prompt and the tokens it had generated. Pure.

The random generator is keyed by (seed, choice, absolute position) and bits do not depend on the batch (X1), so what an
engine of the same fingerprint draws from there is what the first one would have drawn.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from headway.core.request import Request


@dataclass(slots=True)
class ChoiceProgress:
    """How far one choice came. Owned by whoever reads its events.

    token_ids   'i' (num_generated,)
    ended       whether it will get no more tokens
    """

    token_ids: "array[int]" = field(default_factory=lambda: array("i"))
    ended: bool = False

    def extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens that were generated."""
        self.token_ids.extend(token_ids)


def resumed_requests(request: Request, progress: Sequence[ChoiceProgress]) -> list[Request]:
    """Return what is left of `request`: one request of one choice for each that has not ended, with that choice's number.

    progress   of its choices, (n,), in order

    Each has an id of its own, always the same; none has an arrival, so that deadlines count from when an engine takes it.
    A choice that has all its tokens is not asked again. Raises ValueError unless there is one progress for each choice.
    """
    left = []
    for choice, made in zip(
        range(request.first_choice, request.first_choice + request.n), progress, strict=True
    ):
        num_left = request.max_tokens - len(made.token_ids)
        if made.ended or num_left < 1:
            continue
        left.append(
            msgspec.structs.replace(
                request,
                request_id=f"{request.request_id}.{choice}",
                token_ids=(*request.token_ids, *made.token_ids),
                max_tokens=num_left,
                n=1,
                first_choice=choice,
                num_resumed=request.num_resumed + len(made.token_ids),
                resumes=True,
                arrival_ns=None,
            )
        )
    return left
