"""Goes on with a call that another process began: its tokens are read again, and what they made is known to the client.

The same code takes them in the same steps, so texts, tool calls and the response's writer end up where they were, and what
follows is byte for byte what would have followed.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from headway.core.errors import EngineDied
from headway.gateway.answer import Answer
from headway.gateway.choices import Choices
from headway.gateway.generation import Generation
from headway.gateway.request_record import RequestRecord
from headway.gateway.served import ServedModel
from headway.gateway.step_record import StepRecord
from headway.gateway.stored_call import StoredCall

if TYPE_CHECKING:
    from headway.gateway.generate import Endpoint, GeneratingCall

C = TypeVar("C", bound="GeneratingCall")


def replay(
    endpoint: "Endpoint[C]",
    served: ServedModel,
    stored: StoredCall,
    steps: Iterable[StepRecord],
    record: RequestRecord,
) -> tuple[Generation, Answer]:
    """Return the generation of what is left of a call, not yet entered, and the response's writer, both where they were.

    steps   of every batch of events that the client was sent, or that a log holds for it; empty ones, too

    Raises EngineDied where the model would not go on as it began. As slow as a parse and a pass over the tokens.
    """
    info = served.engine.info
    if not info.repeats_exactly or info.system_fingerprint != stored.head.system_fingerprint:
        raise EngineDied(
            "The engine that began this answer was replaced by a different one; send the request again."
        )
    call = endpoint.parse(stored.body)
    answer = endpoint.answer(call, stored.head, served.tokenizer)
    choices = Choices(stored.requests, endpoint.text_maker(call, served, stored.call_key))
    for step in steps:
        answer.stream(choices.replay(step))
    choices.interrupted = True
    return Generation(engine=served.engine, choices=choices, record=record, survives=True), answer
