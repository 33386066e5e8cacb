"""Carries out one request at a remote engine: its turn, its HTTP call, the events it brings. It knows no other request."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from headway.core.clock import Clock
from headway.core.errors import EngineDied, EngineUnavailable, HeadwayError, InternalError, Unavailable
from headway.core.messages import ChoiceFinished, TokenDelta
from headway.engine.remote_body import headers_of
from headway.engine.remote_http import RemoteHttp
from headway.engine.remote_requests import RemoteRequest
from headway.engine.remote_turns import Turn, Turns
from headway.engine.remote_watch import RemoteWatch
from headway.wire.sse_reader import EventTooLarge, SseReader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCalls:
    """What calls have in common.

    sent      is told that a request has its turn
    deliver   is told of tokens and of choices that ended
    finish    is told of a request's end, which another one may have told before
    end       ends a request from outside of its call, which is then cancelled
    """

    http: RemoteHttp
    watch: RemoteWatch
    turns: Turns
    clock: Clock
    sent: Callable[[RemoteRequest], None]
    deliver: Callable[[Sequence[TokenDelta], Sequence[ChoiceFinished]], None]
    finish: Callable[[RemoteRequest, HeadwayError | None], None]
    end: Callable[[RemoteRequest, HeadwayError], None]

    async def carry_out(self, run: RemoteRequest, body: bytes, *, is_headway: bool) -> None:
        """Carry one request out. Whoever cancels this tells its end."""
        try:
            async with self.turns.place(run.request, lambda error: self.end(run, error)) as turn:
                now_ns = self.clock.now_ns()
                self.sent(run)
                run.sent_ns = run.heard_ns = now_ns
                await self._ask(run, turn, body, headers_of(run.request, now_ns) if is_headway else {})
        except HeadwayError as error:
            self.finish(run, error)
        except Exception:
            logger.exception("a request to a remote engine failed")
            self.finish(run, InternalError("The server failed; its log has the details."))

    async def _ask(self, run: RemoteRequest, turn: Turn, body: bytes, headers: dict[str, str]) -> None:
        try:
            async with self.http.answer(body, headers) as pieces:
                await self._read(run, turn, pieces)
        except EngineDied:
            self.watch.suspect()
            if run.first_token_ns is None:  # nobody has seen any of it
                raise EngineUnavailable("The model's engine ended; send the request again.") from None
            raise
        except EngineUnavailable:
            self.watch.suspect()
            self.turns.refused()
            raise
        except Unavailable:
            if run.first_token_ns is None:
                self.turns.refused()
            raise

    async def _read(self, run: RemoteRequest, turn: Turn, pieces: AsyncIterator[bytes]) -> None:
        """Read to the end of the body, which is after the answer's, so that the connection can be used again."""
        reader, answer = SseReader(), run.answer
        async for piece in pieces:
            self.watch.heard_ns = now_ns = self.clock.now_ns()
            if not answer.done:  # what follows the answer is not waited for
                run.heard_ns = now_ns
            deltas: list[TokenDelta] = []
            ends: list[ChoiceFinished] = []
            try:
                for event in reader.feed(piece):
                    if not answer.done:
                        new_deltas, new_ends = answer.take(event)
                        deltas += new_deltas
                        ends += new_ends
            except EventTooLarge:
                raise answer.cut_off() from None
            finally:  # what came before an error is the caller's
                if deltas:
                    run.first_token_ns = run.first_token_ns or now_ns
                    turn.generated(sum(len(delta.token_ids) for delta in deltas))
                if deltas or ends:
                    self.deliver(deltas, ends)
            if answer.done:
                self.finish(run, None)
        if not answer.done:
            raise answer.cut_off()
