"""An engine, two gateways, a log and a client, joined by a channel that an adversary has in hand. Time stands unless moved.

Every method named `do_…` is something that can happen. `check` holds at every moment; `settle` lets the channel be kind from
there on, after which the client must have the whole answer, or a beginning of it and a typed error.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.core.clock import NS_PER_MS
from headway.core.errors import HeadwayError, ResyncRequired
from headway.streams.delivery import Action, Delivery, Resend, Send
from headway.streams.ids import START, Cursor
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.receiver import Receiver
from headway.streams.record import Entry, EventKind, Lease, attach
from support.stream_logs import Gateways

STREAM = "5" * 32
OWNER = "tok"
NUM_TOKENS = 12
ROLE, DONE, ERROR = Entry("control", b"<role>"), Entry("control", b"<done>"), Entry("error", b"<error>")


def piece(epoch: int, n: int) -> str:
    """A token's text. An engine that has to begin anew need not repeat itself."""
    return f"{n}{'abc'[epoch - 1]} "


WHOLES = tuple(
    "<role>" + "".join(piece(epoch, n) for n in range(NUM_TOKENS)) + "<done>" for epoch in (1, 2, 3)
)


@dataclass(frozen=True)
class Message:
    """One event on its way."""

    at: Cursor
    kind: EventKind
    data: str
    last: bool


@dataclass
class Client:
    """Reads one stream over all its connections, and shows text."""

    receiver: Receiver = field(default_factory=Receiver)
    text: str = ""
    is_whole: bool = False
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.is_whole or self.error is not None

    def take(self, message: Message, now_ns: int) -> None:
        if self.is_over:
            return
        try:
            if self.receiver.event(message.at, now_ns) != "take":
                return
        except HeadwayError as error:
            self.error = error.code
            return
        if message.kind == "error":
            self.error = "told"
        else:
            self.text += message.data
            self.is_whole = message.last


class World:
    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._logs: list[StreamLog] = [gateways.one, gateways.two]
        self._now_ns = 0
        self._delivery = Delivery()
        self._down: list[Message] = []
        self._up: list[Cursor] = []
        self._stale: list[tuple[Lease, int]] = []
        self._unnumbered: list[Entry] = []
        self._num_made = 0
        self._num_written = 0
        self._is_attached = False
        self._is_over = False
        self._epoch = 1
        self.client = Client()
        self._written_down = (START, "")

    @property
    def _log(self) -> StreamLog:
        return self._logs[0]

    async def begin(self) -> None:
        self._lease = await self._log.create(STREAM, OWNER, b"")
        self._last_seq = 0

    def check(self) -> None:
        text = self.client.text
        assert any(whole.startswith(text) for whole in WHOLES), f"a splice: {text}"
        assert not self.client.is_whole or text in WHOLES, f"not whole: {text}"

    async def settle(self) -> None:
        for round_number in range(60):
            if self.client.is_over:
                break
            if round_number % 6 == 0:  # what the channel has swallowed is had by going on from the cursor
                await self.do_disconnect()
            await self.do_attach()
            await self.do_step()
            await self.do_idle()
            await self.do_pump()
            while self._down:
                await self.do_deliver()
            await self.do_wait()
            while self._up:
                await self.do_acknowledge()
            self.check()
        assert self.client.is_over, "neither the whole answer nor an error"

    async def do_nothing(self) -> None:
        """What a counterexample shrinks to."""

    # The engine and the gateway that holds the stream.

    async def do_step(self) -> None:
        """The engine makes a token or two, as long as what it made before is in the log."""
        if self._is_over:
            return
        if not self._unnumbered and self._num_made < NUM_TOKENS:
            if self._num_made == 0:
                self._unnumbered.append(ROLE)
            for _ in range(min(1 + self._num_made % 3, NUM_TOKENS - self._num_made)):
                self._unnumbered.append(Entry("content", piece(self._epoch, self._num_made).encode()))
                self._num_made += 1
        if not self._unnumbered:
            self._last_seq = await self._append([DONE], b"", "ended")
            self._is_over = True
            return
        progress = bytes([self._num_made - self._num_written])
        last_seq = await self._log.append(self._lease, self._last_seq, self._unnumbered, progress)
        if last_seq is not None:
            self._last_seq, self._unnumbered, self._num_written = last_seq, [], self._num_made

    async def do_fail(self) -> None:
        """The engine fails: the error overtakes what is not numbered."""
        if not self._is_over:
            self._unnumbered.clear()
            self._last_seq = await self._append([ERROR], b"", "failed")
            self._is_over = True

    async def _append(self, entries: list[Entry], progress: bytes, end: str) -> int:
        last_seq = await self._log.append(
            self._lease, self._last_seq, entries, progress, "ended" if end == "ended" else "failed"
        )
        assert last_seq is not None, "there is always room for an end"
        return last_seq

    async def do_kill(self) -> None:
        """The gateway dies with its connections; the other one goes on from the log, an engine's tokens being the same."""
        await self.do_disconnect()
        self._logs.reverse()
        self._gateways.clock.ms += 10_000
        recovery = await self._log.take_over(STREAM)
        if recovery is None:
            assert self._is_over
            return
        self._stale.append((self._lease, self._last_seq))
        self._lease, self._last_seq = recovery.lease, recovery.record.last_seq
        self._unnumbered = []
        self._num_made = self._num_written = sum(map(sum, recovery.progress))

    async def do_haunt(self) -> None:
        """A gateway that was taken for dead writes."""
        for lease, last_seq in self._stale:
            for log in self._logs:
                try:
                    await log.append(lease, max(last_seq, self._last_seq), [Entry("content", b"SPLICE")])
                except LeaseLost:
                    continue
                raise AssertionError("two gateways append")

    async def do_forget(self) -> None:
        """The client is restarted with what it had written down when it last was, and some of it is acknowledged since."""
        await self.do_disconnect()
        self._down.clear()
        now = (self.client.receiver.cursor, self.client.text)
        (cursor, self.client.text), self._written_down = self._written_down, now
        self.client.receiver = Receiver(cursor)

    async def do_begin_anew(self) -> None:
        """The gateway has to generate from the beginning."""
        if not self._is_over:
            self._epoch = await self._log.new_epoch(self._lease)
            self._last_seq = self._num_made = self._num_written = 0
            self._unnumbered = []

    # The connection.

    async def do_attach(self) -> None:
        if self._is_attached or self.client.is_over:
            return
        try:
            after = attach(await self._log.find(STREAM), OWNER, self.client.receiver.cursor)
        except ResyncRequired as error:
            self.client.error = error.code
            return
        self._is_attached = True
        self._connection_epoch = self._epoch
        self._delivery.attach(after, self._now_ns)
        self.client.receiver.connected(self._now_ns)
        self._send_ack()

    async def do_disconnect(self) -> None:
        """What is on its way may still arrive."""
        if self._is_attached:
            self._is_attached = False
            self._delivery.detach()

    async def do_pump(self) -> None:
        """The gateway reads the log and sends what is new."""
        if not self._is_attached or self._delivery.num_free == 0:
            return
        try:
            page = await self._log.read(STREAM, self._connection_epoch, self._delivery.sent, 3)
        except ResyncRequired as error:
            await self.do_disconnect()
            self.client.error = self.client.error or error.code
            return
        for event in page.events:
            await self._carry_out(self._delivery.numbered(event.seq, event.entry.kind, self._now_ns))

    async def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send | Resend):
                try:
                    page = await self._log.read(STREAM, self._connection_epoch, action.seq - 1, 1)
                except ResyncRequired:  # acknowledged or begun anew since
                    continue
                (event,) = page.events
                at = Cursor(self._connection_epoch, event.seq)
                last = page.complete
                self._down.append(Message(at, event.entry.kind, event.entry.data.decode(), last))

    async def do_wait(self) -> None:
        self._now_ns += 200 * NS_PER_MS
        await self._carry_out(self._delivery.tick(self._now_ns))
        self._send_ack()

    async def do_busy(self) -> None:
        self._delivery.buffer(is_empty=False, now_ns=self._now_ns)

    async def do_idle(self) -> None:
        self._delivery.buffer(is_empty=True, now_ns=self._now_ns)

    # The channel, and the client behind it.

    def _send_ack(self) -> None:
        if self._is_attached and (cursor := self.client.receiver.take_ack(self._now_ns)) is not None:
            self._up.append(cursor)

    async def do_deliver(self) -> None:
        if self._down:
            self.client.take(self._down.pop(0), self._now_ns)
            self._send_ack()

    async def do_deliver_last(self) -> None:
        if self._down:
            self.client.take(self._down.pop(), self._now_ns)
            self._send_ack()

    async def do_deliver_twice(self) -> None:
        if self._down:
            self._down.append(self._down[0])
            await self.do_deliver()

    async def do_lose(self) -> None:
        del self._down[:1]

    async def do_lose_all(self) -> None:
        self._down.clear()
        self._up.clear()

    async def do_acknowledge(self) -> None:
        if self._up:
            await self._take_ack(self._up.pop(0))

    async def do_acknowledge_twice_and_late(self) -> None:
        if self._up:
            self._up.append(self._up[0])
            await self._take_ack(self._up[-1])

    async def do_lose_acknowledgement(self) -> None:
        del self._up[:1]

    async def _take_ack(self, cursor: Cursor) -> None:
        try:
            await self._log.ack(STREAM, cursor.epoch, cursor.seq)
        except ResyncRequired:  # of an epoch that is over
            return
        self._delivery.acknowledged(cursor.seq, self._now_ns)


HAPPENINGS: dict[str, Callable[[World], object]] = {
    name.removeprefix("do_"): method for name, method in vars(World).items() if name.startswith("do_")
}
OFTEN = ("step", "pump", "deliver", "attach", "wait", "acknowledge")
SELDOM = ("fail", "begin_anew", "forget")
EVERYTHING = (*(name for name in HAPPENINGS if name not in SELDOM), *OFTEN * 2)
