"""Conversations: whose cached blocks stay while their user reads and writes, until they go on or are over.

    ACTIVE    a request of it runs or waits
    IDLE      none does; what it said is in blocks of the KV cache, which are evicted after those of nobody's
    PARKED    none does, and its last block has left for memory or disk
    ENDED     released, or idle for too long; a request of it may still run
    RECLAIMED its blocks have been given back

The transitions are the table `TRANSITIONS`. A conversation is named by (tenant, session). It holds contents, by the digest
of their prefix chain, whether they are in blocks or not; several may hold the same. How much of the pool all of them may
hold on to is the pool's to bound (`kv.block_pool`).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from headway.core.request import Request
from headway.engine.sequence import Sequence
from headway.kv.blocks import KvBlocks

MAX_RESTING = 4096
"""Conversations remembered while none of their requests runs; beyond them the one that rests longest ends."""

SessionName = tuple[str, str]
"""(tenant, session)"""


class SessionState(Enum):
    """Where a conversation stands."""

    ACTIVE = "active"
    IDLE = "idle"
    PARKED = "parked"
    ENDED = "ended"
    RECLAIMED = "reclaimed"


class SessionMove(Enum):
    """What happens to a conversation."""

    START = "start"
    REST = "rest"
    PARK = "park"
    END = "end"
    RECLAIM = "reclaim"


TRANSITIONS: dict[tuple[SessionState, SessionMove], SessionState] = {
    (SessionState.ACTIVE, SessionMove.START): SessionState.ACTIVE,
    (SessionState.ACTIVE, SessionMove.REST): SessionState.IDLE,
    (SessionState.ACTIVE, SessionMove.END): SessionState.ENDED,
    (SessionState.IDLE, SessionMove.START): SessionState.ACTIVE,
    (SessionState.IDLE, SessionMove.PARK): SessionState.PARKED,
    (SessionState.IDLE, SessionMove.END): SessionState.ENDED,
    (SessionState.IDLE, SessionMove.RECLAIM): SessionState.RECLAIMED,
    (SessionState.PARKED, SessionMove.START): SessionState.ACTIVE,
    (SessionState.PARKED, SessionMove.END): SessionState.ENDED,
    (SessionState.ENDED, SessionMove.START): SessionState.ACTIVE,
    (SessionState.ENDED, SessionMove.END): SessionState.ENDED,
    (SessionState.ENDED, SessionMove.RECLAIM): SessionState.RECLAIMED,
    (SessionState.RECLAIMED, SessionMove.START): SessionState.ACTIVE,
    (SessionState.RECLAIMED, SessionMove.END): SessionState.ENDED,
}


class IllegalSessionMove(Exception):
    """A conversation was asked to do what its state does not allow: a bug of the caller."""


@dataclass(slots=True, eq=False)
class _Session:
    """What is remembered of a conversation.

    held       digests of its contents, each after the one it continues
    continued  digests of what its requests said since it last rested
    tail       the last of `held` while it rests and that one is in a block
    """

    state: SessionState
    num_requests: int = 0
    held: dict[bytes, None] = field(default_factory=dict)
    continued: set[bytes] = field(default_factory=set)
    tail: bytes | None = None


class Sessions:
    """The conversations of one engine.

    idle_ns       how long one that rests is remembered
    drop_stored   forgets a content outside the pool; None = there is nothing outside
    """

    def __init__(self, kv: KvBlocks, idle_ns: int, drop_stored: Callable[[bytes], None] | None) -> None:
        self._kv = kv
        self._idle_ns = idle_ns
        self._drop_stored = drop_stored
        self._sessions: dict[SessionName, _Session] = {}
        self._resting: dict[SessionName, int] = {}  # since when; longest first
        self._num_holders: Counter[bytes] = Counter()
        self._by_tail: dict[bytes, set[SessionName]] = {}
        self._num_in: Counter[SessionState] = Counter()

    def num_in(self, state: SessionState) -> int:
        """Return how many conversations are in `state`."""
        return self._num_in[state]

    # Requests

    def enter(self, request: Request) -> None:
        """A request was accepted."""
        name = _name(request)
        if name is None:
            return
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session(SessionState.ACTIVE)
            self._num_in[SessionState.ACTIVE] += 1
        else:
            self._move(session, SessionMove.START)
        session.num_requests += 1
        self._resting.pop(name, None)
        self._set_tail(name, session, None)

    def hold(self, sequence: Sequence) -> None:
        """A sequence is about to let go of its blocks: those that can be shared are kept for what comes next."""
        name = _name(sequence.request)
        if name is None:
            return
        session = self._sessions[name]
        session.continued.update(key.digest for key in sequence.keys)
        for index in range(sequence.num_shared):
            self._kv.pool.keep(sequence.table[index])
            digest = sequence.keys[index].digest
            if digest not in session.held:
                session.held[digest] = None
                self._num_holders[digest] += 1

    def leave(self, request: Request, now_ns: int) -> None:
        """A request ended, all its blocks being let go. After the last one, what none continued is held no more."""
        name = _name(request)
        if name is None:
            return
        session = self._sessions[name]
        session.num_requests -= 1
        if session.num_requests:
            return
        self._let_go(session, [digest for digest in session.held if digest not in session.continued])
        session.continued.clear()
        if session.state is SessionState.ENDED:
            self._reclaim(name, session, drops=True)
            return
        self._move(session, SessionMove.REST)
        self._resting[name] = now_ns
        self._settle(name, session)
        if len(self._resting) > MAX_RESTING:
            self._end(next(iter(self._resting)), drops=False)

    # What else ends or moves them

    def release(self, name: SessionName) -> bool:
        """End a conversation and give back what only it holds, at once or after its last request; False = unknown."""
        if name not in self._sessions:
            return False
        self._end(name, drops=True)
        return True

    def expire(self, now_ns: int) -> None:
        """End those that rest for too long; what they hold is evicted like anything else from now on."""
        while self._resting:
            name, since_ns = next(iter(self._resting.items()))
            if now_ns - since_ns < self._idle_ns:
                return
            self._end(name, drops=False)

    def on_evict(self, digest: bytes) -> None:
        """A block is about to leave the pool; call it before the cache forgets."""
        for name in self._by_tail.pop(digest, ()):
            session = self._sessions[name]
            session.tail = None
            if self._drop_stored is not None:
                self._move(session, SessionMove.PARK)
            else:
                self._let_go(session, [digest])
                self._settle(name, session, evicted=digest)

    def check(self) -> None:
        """Raise AssertionError unless holders and states are counted right. For tests."""
        held = Counter(digest for session in self._sessions.values() for digest in session.held)
        assert held == +self._num_holders, "holders are miscounted"
        assert Counter(session.state for session in self._sessions.values()) == +self._num_in
        for name, session in self._sessions.items():
            runs = session.num_requests > 0
            assert runs == (session.state in (SessionState.ACTIVE, SessionState.ENDED)), "a state is wrong"
            assert runs != (name in self._resting), "a conversation rests and runs, or does neither"
            assert session.tail is None or name in self._by_tail[session.tail], "a tail is not watched"

    def _settle(self, name: SessionName, session: _Session, evicted: bytes | None = None) -> None:
        """Watch the last content of a resting conversation; where none is in a block, it is parked or reclaimed."""
        had_content = bool(session.held) or evicted is not None
        while session.held:
            tail = next(reversed(session.held))
            if self._kv.cache.find(tail) is not None:
                self._set_tail(name, session, tail)
                return
            if self._drop_stored is not None:
                self._move(session, SessionMove.PARK)
                return
            self._let_go(session, [tail])
        if had_content:
            self._move(session, SessionMove.RECLAIM)

    def _end(self, name: SessionName, *, drops: bool) -> None:
        session = self._sessions[name]
        self._move(session, SessionMove.END)
        if not session.num_requests:
            self._reclaim(name, session, drops=drops)

    def _reclaim(self, name: SessionName, session: _Session, *, drops: bool) -> None:
        self._set_tail(name, session, None)
        ours = self._let_go(session, list(session.held))
        if drops:
            self._kv.drop(ours)
            if self._drop_stored is not None:
                for digest in ours:
                    self._drop_stored(digest)
        self._move(session, SessionMove.RECLAIM)
        self._num_in[SessionState.RECLAIMED] -= 1
        self._resting.pop(name, None)
        del self._sessions[name]

    def _let_go(self, session: _Session, digests: list[bytes]) -> list[bytes]:
        """Hold `digests` no more; return those that nobody holds now, last first, their blocks being like any."""
        nobodys = []
        for digest in reversed(digests):
            del session.held[digest]
            self._num_holders[digest] -= 1
            if not self._num_holders[digest]:
                del self._num_holders[digest]
                nobodys.append(digest)
        self._kv.unkeep(nobodys)
        return nobodys

    def _set_tail(self, name: SessionName, session: _Session, tail: bytes | None) -> None:
        if session.tail is not None:
            watching = self._by_tail[session.tail]
            watching.discard(name)
            if not watching:
                del self._by_tail[session.tail]
        session.tail = tail
        if tail is not None:
            self._by_tail.setdefault(tail, set()).add(name)

    def _move(self, session: _Session, move: SessionMove) -> None:
        target = TRANSITIONS.get((session.state, move))
        if target is None:
            raise IllegalSessionMove(f"a conversation that is {session.state.value} cannot {move.value}")
        self._num_in[session.state] -= 1
        self._num_in[target] += 1
        session.state = target


def _name(request: Request) -> SessionName | None:
    return None if request.session is None else (request.tenant, request.session)
