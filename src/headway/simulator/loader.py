"""Carries out the lab's loads in virtual time: a `lab.loader.Loader` whose endpoint is a set of simulated replicas.

It does what `lab/drive.py` does, open and closed, by the same rules; only that everything happens at once, so that its
coroutines never wait. Requests go to a replica when their prompt is ready, and the replica's steps answer them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.core.messages import Cancel, StepOutputs, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.lab.drive import FIRST_PAUSE_NS, LONGEST_PAUSE_NS, Offered
from headway.lab.exchange import Exchange, StreamEvent
from headway.lab.sample import Sample
from headway.lab.workload import Conversation
from headway.runner.step import RunnerInfo
from headway.simulator.costs import ServingCost, StepCost
from headway.simulator.prompts import PromptMaker
from headway.simulator.replica import Replica
from headway.simulator.routing import Route, Router
from headway.simulator.talk import EVENT_CHARS, Lengths, Talk
from headway.simulator.timeline import Kind, Timeline

_SAMPLING = SamplingParams(temperature=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is simulated: replicas of one engine on one kind of machine, and how requests find them."""

    name: str
    runner: RunnerInfo
    step: StepCost
    serving: ServingCost = field(default_factory=ServingCost)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    num_replicas: int = 1
    route: Route = "least-loaded"
    machine: str = "a machine"
    """Each replica's, and how it is predicted, in a few words."""

    def described(self) -> str:
        """Return what is simulated, in a few words."""
        if self.num_replicas == 1:
            return f"{self.name} on {self.machine}"
        return f"{self.num_replicas} replicas of {self.name}, {self.route}, each on {self.machine}"


class SimulatedLoader:
    """Owns the replicas, and the time they live in: loads follow each other in it."""

    def __init__(
        self,
        service: Service,
        talks: Iterator[Conversation],
        prompts: PromptMaker,
        lengths: Lengths,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        """Raises ConfigError for a service that could run nothing. `on_sample` None: nobody asks for samples."""
        self._timeline = Timeline()
        self._talks = talks
        self._prompts = prompts
        self._lengths = lengths
        self._serving = service.serving
        self._on_sample = on_sample
        self._router = Router(service.route, service.num_replicas)
        self._replicas = [
            Replica(
                self._timeline, service.runner, service.scheduler, service.step, self._deliver, service.name
            )
            for _ in range(service.num_replicas)
        ]
        self._open: dict[str, tuple[Talk, Replica]] = {}
        self._num_asked = 0
        self._stopped = False
        self._offered = Offered()

    async def __aenter__(self) -> Self:
        """See Loader."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See Loader."""

    @property
    def num_running(self) -> int:
        """See Loader."""
        return self._offered.num_running

    @property
    def replicas(self) -> Sequence[Replica]:
        """The replicas, for who wants to look at their engines."""
        return self._replicas

    async def open(self, offsets_ns: Sequence[int]) -> Offered:
        """See Loader."""
        start_ns = self._begin()
        arrivals = iter(offsets_ns)

        def plan_next() -> None:
            offset_ns = next(arrivals, None)
            conversation = None if offset_ns is None else self._next_conversation()
            if offset_ns is not None and conversation is not None:
                self._timeline.at(start_ns + offset_ns, Kind.ARRIVE, lambda: start(conversation))

        def start(conversation: Conversation) -> None:
            if not self._stopped:
                plan_next()
                self._ask(self._talk(conversation, self._go_on))

        plan_next()
        self._timeline.run()
        return self._offered

    async def closed(
        self, num_users: int, *, num_conversations: int | None, duration_ns: int | None
    ) -> Offered:
        """See Loader and `lab.drive.Driver.closed`."""
        start_ns = self._begin()
        end_ns = math.inf if duration_ns is None else start_ns + duration_ns
        left = math.inf if num_conversations is None else num_conversations

        def begin_next(num_failures: int) -> None:
            nonlocal left
            if self._stopped or left <= 0 or self._timeline.now_ns >= end_ns:
                return
            conversation = self._next_conversation()
            if conversation is None:
                return
            left -= 1
            self._ask(
                self._talk(conversation, lambda talk, exchange: over(talk, exchange, num_failures)),
            )

        def over(talk: Talk, exchange: Exchange, num_failures: int) -> None:
            if self._go_on(talk, exchange):
                return
            failure = exchange.answer.failure
            if failure is None or failure.kind not in ("connection", "refused"):
                begin_next(0)
                return
            pause_ns = min(FIRST_PAUSE_NS << num_failures, LONGEST_PAUSE_NS)
            self._timeline.at(
                self._timeline.now_ns + pause_ns,
                Kind.ARRIVE,
                lambda: begin_next(min(num_failures + 1, 20)),
            )

        for _ in range(num_users):
            self._timeline.at(start_ns, Kind.ARRIVE, lambda: begin_next(0))
        self._timeline.run()
        return self._offered

    def stop(self) -> None:
        """See Loader."""
        self._stopped = True
        for request_id, (_, replica) in self._open.items():
            replica.send(Cancel(request_id=request_id))

    def _begin(self) -> int:
        self._stopped = False
        self._offered = Offered(start_ns=self._timeline.now_ns)
        return self._timeline.now_ns

    def _next_conversation(self) -> Conversation | None:
        try:
            return next(self._talks, None)
        except ConfigError as error:  # no more can be made
            if self._num_asked == 0:
                raise
            self._offered.ended_early = self._offered.ended_early or error.message
            return None

    def _talk(self, conversation: Conversation, on_over: Callable[[Talk, Exchange], object]) -> Talk:
        return Talk(conversation, self._timeline.now_ns, self._prompts, self._lengths, on_over)

    def _go_on(self, talk: Talk, exchange: Exchange) -> bool:
        """Keep a record; ask the next turn, if there is one, and return whether."""
        self._offered.exchanges.append(exchange)
        if self._on_sample is not None:
            self._on_sample(Sample.of(exchange))
        if exchange.ok and talk.has_more and not self._stopped:
            self._ask(talk)
            return True
        if not exchange.ok:
            self._offered.num_unsent_turns += talk.conversation.num_turns - talk.turn
        self._router.forget(talk.conversation.number)
        return False

    def _ask(self, talk: Talk) -> None:
        """Send the talk's next turn, due now."""
        timeline = self._timeline
        talk.begin_turn(timeline.now_ns)
        self._offered.num_running += 1
        self._num_asked += 1
        request_id = str(self._num_asked)
        queued_ns = timeline.now_ns + self._serving.until_queued_ns(len(talk.prompt))
        timeline.at(queued_ns, Kind.ARRIVE, lambda: self._submit(request_id, talk))

    def _submit(self, request_id: str, talk: Talk) -> None:
        if self._stopped:
            self._cut()
            return
        loads = [replica.num_open for replica in self._replicas]
        replica = self._replicas[self._router.choose(talk.conversation.number, loads)]
        replica.num_open += 1
        self._open[request_id] = (talk, replica)
        request = Request(
            request_id=request_id,
            token_ids=talk.prompt,
            sampling=_SAMPLING,
            max_tokens=max(1, talk.length.num_tokens),
            arrival_ns=talk.due_ns,
        )
        replica.send(Submit(request))

    def _cut(self) -> None:
        self._offered.num_running -= 1
        self._offered.num_cut += 1

    def _deliver(self, outputs: StepOutputs) -> None:
        """Give everyone what came of a step that ends now."""
        now_ns, events = self._timeline.now_ns, dict[int, StreamEvent]()
        for delta in outputs.deltas:
            talk, _ = self._open[delta.request_id]
            count = len(delta.token_ids)
            event = events.get(count)
            if event is None:  # one for all: a step of 64 streams has one time
                event = events[count] = StreamEvent(
                    at_ns=now_ns, kind="content", num_chars=EVENT_CHARS * count, num_tokens=count
                )
            talk.take(delta.token_ids, event)
        for finished in outputs.finished:
            talk, replica = self._open.pop(finished.request_id)
            replica.num_open -= 1
            if self._stopped:
                self._cut()
            else:
                self._offered.num_running -= 1
                talk.end(finished, now_ns)
