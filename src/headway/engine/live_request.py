"""What the engine remembers of a request between its acceptance and its one `Finished`.

It knows no blocks and no steps. Times are monotonic nanoseconds of the engine's clock.
"""

from dataclasses import dataclass

from headway.core.errors import HeadwayError
from headway.core.messages import ErrorInfo, Finished, Usage
from headway.core.request import Request
from headway.engine.sequence import Sequence


@dataclass(slots=True, kw_only=True)
class LiveRequest:
    """A request in the engine; `open` maps each choice that has not ended to its sequence."""

    request: Request
    open: dict[int, Sequence]
    queued_ns: int
    num_output: int = 0
    num_cached: int = 0
    num_preemptions: int = 0
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None
    embedding: bytes | None = None

    def finished(self, now_ns: int, error: HeadwayError | None) -> Finished:
        """Return the terminal event."""
        return Finished(
            request_id=self.request.request_id,
            usage=Usage(
                prompt_tokens=len(self.request.token_ids),
                completion_tokens=self.num_output,
                cached_tokens=self.num_cached,
            ),
            embedding=self.embedding,
            error=None if error is None else ErrorInfo.of(error),
            num_preemptions=self.num_preemptions,
            queued_ns=self.queued_ns,
            first_scheduled_ns=self.first_scheduled_ns,
            first_token_ns=self.first_token_ns,
            finished_ns=now_ns,
        )


def refused(request: Request, error: HeadwayError, now_ns: int) -> Finished:
    """Return the terminal event of a request that was never accepted."""
    usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=0)
    return Finished(request_id=request.request_id, usage=usage, error=ErrorInfo.of(error), finished_ns=now_ns)
