"""What a run's options make a client send: its load, its conversations, and the bytes of their requests.

Every process of a run makes its own from the same options, and takes each its share: which requests are sent does not depend
on how many processes send them.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.arrival_grammar import Arrival, parse_arrival
from headway.lab.arrivals import Closed, ClosedSteps, Open, offsets_ns
from headway.lab.chat_body import chat_body
from headway.lab.code_corpus import CodeCorpus, standard_library
from headway.lab.ladder_rules import LadderRules
from headway.lab.model_list import ServedModel
from headway.lab.request_headers import SESSION, Headers
from headway.lab.run_options import RunOptions
from headway.lab.server_tokens import measured_estimate
from headway.lab.token_counter import token_counter
from headway.lab.token_estimate import TokenCounter, TokenEstimate, estimated
from headway.lab.trace import Trace
from headway.lab.trace_facts import TraceFacts, trace_facts
from headway.lab.trace_prompts import trace_conversations
from headway.lab.trace_replay import recorded_trace, replayed
from headway.lab.workload import (
    Conversation,
    WorkloadOptions,
    WorkloadRequest,
    conversations,
    num_planned,
    up_to,
)
from headway.lab.workload_spec import TraceFile, Workload, needs_lengths, num_turns, parse_workload

DEFAULT_REQUESTS = 100
"""Where nothing else ends a run: as many as a p99 takes."""
USERS_PER_PROCESS = 128
RATE_PER_PROCESS = 100
"""Requests per second. One core stamps and reads several times as much, even of answers of a few hundred tokens."""


_SEEDS_APART = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Use `plan_traffic`, and `for_model` before conversations are made. `load` None: the trace's own times."""

    options: RunOptions
    workload: Workload
    arrival: str
    load: Arrival | None
    trace: Trace | None
    """With the times it is replayed at."""
    facts: TraceFacts | None
    """Of the trace as it was recorded."""
    num_requests: int | None
    """At which no more conversations begin. None: the load or the duration ends the run."""
    model: ServedModel | None = None
    token_estimate: TokenEstimate | None = None
    """What prompts' lengths are made by; None: the workload asks for none."""

    async def for_model(self, model: ServedModel) -> "Traffic":
        """Return the traffic for a model of the endpoint, which is asked how it counts tokens if lengths matter.

        Raises ConfigError for lengths that do not fit the model.
        """
        estimate = None
        if needs_lengths(self.workload):
            corpus = CodeCorpus(standard_library(), self.options.seed)
            estimate = await measured_estimate(self.options.endpoint, model.name, corpus)
        made = replace(self, model=model, token_estimate=estimate)
        made.conversations()
        return made

    def body(self, request: WorkloadRequest) -> bytes:
        """Return the bytes of a request's body."""
        assert self.model is not None
        return chat_body(request, self.model.name, temperature=0, seed=self.options.seed)

    def headers(self, conversation: Conversation) -> Headers:
        """Return what all requests of a conversation have beside the endpoint's: its session, where that is asked for."""
        session = self.options.session
        return () if session is None else ((SESSION, f"{session}-{conversation.number}"),)

    def token_counter(self) -> TokenCounter | None:
        """Return what counts the tokens of answers without usage; raises ConfigError for a file that is no tokenizer."""
        path = self.options.tokenizer
        return None if path is None else token_counter(path)

    def conversations(self, *, index: int = 0, count: int = 1) -> Iterator[Conversation]:
        """Return the share of process `index` of `count`: every `count`-th conversation.

        Raises ConfigError for lengths that do not fit, and while iterating when no unused code is left.
        """
        options = self.options
        corpus = CodeCorpus(standard_library(), options.seed)
        assert self.model is not None
        estimate = self.token_estimate or TokenEstimate()
        sizes = WorkloadOptions(
            seed=options.seed,
            output_tokens=options.output_tokens,
            count_tokens=estimated(estimate.chars_per_token),
            max_context_tokens=self.model.max_context_tokens,
        )
        if self.trace is None:
            assert not isinstance(self.workload, TraceFile)
            made = conversations(self.workload, corpus, sizes)
        else:
            made = trace_conversations(self.trace, corpus, sizes)
        made = islice(made, options.num_skipped, None)
        if not isinstance(self.load, LadderRules | ClosedSteps):  # each of their steps takes what it needs
            made = up_to(self.num_requests, made)
        return islice(made, index, None, count)

    def offsets_ns(self) -> list[int]:
        """Return when the conversations of an open load start."""
        options, load = self.options, self.load
        if load is None:
            assert self.trace is not None
            recorded = self._recorded(self.trace)
            return list(islice(recorded, self.num_requests))
        assert isinstance(load, Open)
        return list(
            offsets_ns(
                load,
                options.seed + _SEEDS_APART * options.num_skipped,
                num_requests=self.num_requests,
                duration_ns=options.duration_ns,
            )
        )

    @property
    def turns(self) -> int | None:
        """How many requests each conversation becomes; None where they differ."""
        return num_turns(self.workload)

    def num_expected(self) -> int | None:
        """Return how many requests it becomes if all go well; None where that is not known before."""
        if isinstance(self.load, LadderRules):
            return None
        turns = self.turns
        if turns is None:
            return self.num_requests  # or as many more as the last conversation has turns left
        ends = [] if self.num_requests is None else [math.ceil(self.num_requests / turns)]
        if not isinstance(self.load, Closed | ClosedSteps):
            ends.append(len(self.offsets_ns()))
        num_steps = len(self.load.steps) if isinstance(self.load, ClosedSteps) else 1
        return min(ends) * turns * num_steps if ends else None

    @property
    def step_conversations(self) -> int | None:
        """How many conversations a closed load, or each step of one, has at most; None: its duration ends it."""
        if self.num_requests is None or not isinstance(self.load, ClosedSteps):
            return self.num_requests  # of which `conversations` ends with the last request
        return math.ceil(self.num_requests / (self.turns or 1))

    def num_processes(self) -> int:
        """Return how many client processes send it: what is asked for, else no more than its rate or users take.

        A process that has nothing to do takes nothing from a server on the same machine, but one that has little to do is
        better off alone: its loop is awake more of the time.
        """
        load, asked = self.load, self.options.num_processes
        if isinstance(load, ClosedSteps):
            users = [step.num_users for step in load.steps]
            enough = min(math.ceil(max(users) / USERS_PER_PROCESS), len(os.sched_getaffinity(0)))
            return min(asked or enough, *users)
        if asked is not None:  # a process without a user would keep its share of the conversations
            return min(asked, load.num_users) if isinstance(load, Closed) else asked
        if isinstance(load, Closed):
            wanted = load.num_users / USERS_PER_PROCESS
        elif isinstance(load, Open):
            wanted = max(max(stage.from_rate, stage.to_rate) for stage in load.stages) / RATE_PER_PROCESS
        elif isinstance(load, LadderRules):
            wanted = load.target_rate / RATE_PER_PROCESS
        else:
            assert self.trace is not None
            rows, duration_ns = self.trace.rows, self.trace.duration_ns
            wanted = len(rows) * NS_PER_S / duration_ns / RATE_PER_PROCESS if duration_ns else 1
        return max(1, min(math.ceil(wanted), len(os.sched_getaffinity(0))))

    def _recorded(self, trace: Trace) -> Iterator[int]:
        end_ns = math.inf if self.options.duration_ns is None else self.options.duration_ns
        return takewhile(lambda offset_ns: offset_ns < end_ns, (row.offset_ns for row in trace.rows))


def plan_traffic(options: RunOptions) -> Traffic:
    """Read what is asked for; raises ConfigError for what cannot be."""
    workload = parse_workload(options.workload, options.lines)
    trace = recorded_trace(workload, options.replay, options.arrival)
    facts = None if trace is None else trace_facts(trace)
    load = None if options.arrival is None and trace else parse_arrival(options.arrival or "closed:1")
    num_requests = options.num_requests
    if trace is not None and isinstance(load, ClosedSteps | LadderRules):
        raise ConfigError(
            "The first steps would ask all of a trace: write one load, as in closed:4, or none for the trace's times."
        )
    endless = isinstance(load, Closed | ClosedSteps) or (isinstance(load, Open) and load.endless)
    if num_requests is None and options.duration_ns is None and endless:
        num_requests = _num_planned(workload, trace)
    if trace is not None:
        trace = replayed(trace, options.replay, options.seed)
        trace = replace(trace, rows=trace.rows[:num_requests])  # only what is sent has to fit the model
    return Traffic(
        options=options,
        workload=workload,
        arrival=options.arrival or ("trace" if trace else "closed:1"),
        load=load,
        trace=trace,
        facts=facts,
        num_requests=num_requests,
    )


def _num_planned(workload: Workload, trace: Trace | None) -> int:
    """Return after how many requests a run ends that nothing else does."""
    if trace is not None:
        return len(trace.rows)
    return (None if isinstance(workload, TraceFile) else num_planned(workload)) or DEFAULT_REQUESTS


def shares(total: int, count: int) -> Sequence[int]:
    """Return `total` divided among `count`, the first ones getting one more where it does not divide.

    >>> shares(7, 3)
    [3, 2, 2]
    """
    return [total // count + (index < total % count) for index in range(count)]
