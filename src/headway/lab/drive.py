"""Offers a load to an endpoint: who asks what, when; and keeps every record.

An open load's starts, and the bytes of every first turn, are made before the first is due, and then nothing waits for
anything but the clock: what is due while the server stalls is sent, and its latency counts from when it was due. A
conversation's later turns are due when the answer before has ended. It knows no arrival processes and no statistics.
"""

import asyncio
import gc
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import HeadwayError
from headway.lab.client import Client
from headway.lab.exchange import Exchange
from headway.lab.pacer import Pacer
from headway.lab.request_headers import Headers
from headway.lab.workload import Conversation, WorkloadRequest

LEAD_NS = 20_000_000
"""From the end of all preparations to the first start, so that it is not late either."""

FIRST_PAUSE_NS = 10 * NS_PER_MS
LONGEST_PAUSE_NS = NS_PER_S

Body = Callable[[WorkloadRequest], bytes]
ConversationHeaders = Callable[[Conversation], Headers]
Start = Callable[[], Awaitable[int]]
"""Awaited when everything is prepared; returns the load's zero, which several processes may have to agree on."""


async def soon() -> int:
    """Start as soon as the first request can be on time."""
    return time.monotonic_ns() + LEAD_NS


@dataclass(slots=True)
class Offered:
    """What became of a load so far; a run that is cancelled has left here what was over by then."""

    exchanges: list[Exchange] = field(default_factory=list)
    """In the order of their ends."""
    num_running: int = 0
    """Sent, and not over."""
    num_cut: int = 0
    """Sent, and given up when the load was stopped: no record tells of them."""
    ended_early: str | None = None
    """Why no more could be sent, in a sentence."""
    num_unsent_turns: int = 0
    """Those that were to follow a turn that failed."""
    start_ns: int | None = None
    """The load's zero, on the monotonic clock."""


class Driver:
    """Carries out one load after another; `offered` is what became of the last one, and `on_exchange` sees each record made.

    `headers` are those that all requests of a conversation have beside everybody's.
    A load that is cancelled leaves in `offered` what was over by then.
    """

    def __init__(
        self,
        client: Client,
        body: Body,
        on_exchange: Callable[[Exchange], None] = lambda _: None,
        headers: ConversationHeaders = lambda _: (),
    ) -> None:
        self._client = client
        self._body = body
        self._headers = headers
        self._on_exchange = on_exchange
        self.offered = Offered()

    async def open(
        self, offsets_ns: Iterable[int], conversations: Iterator[Conversation], start: Start = soon
    ) -> None:
        """Start a conversation at each of the finitely many `offsets_ns`, which never fall; return when all are over."""
        self.offered = offered = Offered()
        starts = [
            (offset_ns, conversation, self._body(conversation.request()))
            for offset_ns, conversation in zip(offsets_ns, conversations, strict=False)
        ]
        with Pacer() as pacer, no_collections():
            offered.start_ns = await start()
            async with asyncio.TaskGroup() as group:
                for offset_ns, conversation, body in starts:
                    due_ns = offered.start_ns + offset_ns
                    await pacer.sleep_until(due_ns)
                    group.create_task(self._converse(conversation, body, due_ns))

    async def closed(
        self,
        num_users: int,
        conversations: Iterator[Conversation],
        *,
        num_conversations: int | None = None,
        duration_ns: int | None = None,
        start: Start = soon,
    ) -> None:
        """Let users begin their next conversation when their last is over; return when the last one is.

        None begins after `num_conversations` or `duration_ns`, of which one is given (ValueError). Nobody thinks in between,
        but one who is refused, or finds nobody there, waits: 10 ms, then twice as long each time, up to a second.
        """
        if num_conversations is None and duration_ns is None:
            raise ValueError("a load without an end")
        self.offered = offered = Offered()
        left = num_conversations

        def prepare() -> tuple[Conversation, bytes] | None:
            nonlocal left
            if left == 0:
                return None
            try:
                conversation = next(conversations, None)
            except HeadwayError as error:  # nothing more can be made
                if offered.start_ns is None:
                    raise
                offered.ended_early = offered.ended_early or error.message
                return None
            if conversation is None:
                return None
            if left is not None:
                left -= 1
            return conversation, self._body(conversation.request())

        async def user(prepared: tuple[Conversation, bytes] | None, start_ns: int, end_ns: float) -> None:
            await pacer.sleep_until(start_ns)
            due_ns, num_failures = start_ns, 0
            while prepared is not None and due_ns < end_ns:
                talk = group.create_task(self._converse(*prepared, due_ns))
                await asyncio.sleep(0)  # it is sent, and while it is answered there is time
                prepared = prepare()
                last, due_ns = await talk
                if last.answer.failure is None or last.answer.failure.kind not in ("connection", "refused"):
                    num_failures = 0
                    continue
                due_ns += min(FIRST_PAUSE_NS << num_failures, LONGEST_PAUSE_NS)
                num_failures = min(num_failures + 1, 20)
                await pacer.sleep_until(due_ns)

        with Pacer() as pacer, no_collections():
            first = [prepare() for _ in range(num_users)]
            start_ns = offered.start_ns = await start()
            end_ns = math.inf if duration_ns is None else start_ns + duration_ns
            async with asyncio.TaskGroup() as group:
                for prepared in first:
                    group.create_task(user(prepared, start_ns, end_ns))

    async def _converse(self, conversation: Conversation, body: bytes, due_ns: int) -> tuple[Exchange, int]:
        """Ask turn by turn until the last, or one that fails; return it, and when its record was made.

        That is when what follows it is due: a user's client does not read its answers again before it asks on.
        """
        answers: list[str] = []
        offered = self.offered
        for turn in range(1, conversation.num_turns + 1):
            if turn > 1:
                body = self._body(conversation.request(answers))
            offered.num_running += 1
            try:
                exchange = await self._client.ask(
                    body,
                    intended_ns=due_ns,
                    conversation=conversation.number,
                    turn=turn,
                    label=conversation.label,
                    headers=self._headers(conversation),
                )
            except asyncio.CancelledError:
                offered.num_cut += 1
                raise
            finally:
                offered.num_running -= 1
            due_ns = time.monotonic_ns()
            offered.exchanges.append(exchange)
            self._on_exchange(exchange)
            if not exchange.ok:
                offered.num_unsent_turns += conversation.num_turns - turn
                break
            answers.append(exchange.answer.content)
        return exchange, due_ns


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector from stopping the client for milliseconds; a run makes no cycles to speak of."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
