"""Whose prompt is tokenised next, and whose is one too many. It knows no thread.

One thread tokenises for everybody. In order of arrival alone whoever sends most would hold up all others: so next is the
user whose last turn was longest ago, and of his prompts the first. Where too much waits the latest of the user with most in
it goes (`flow/lines.py`).
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from headway.flow.lines import Lines

User = tuple[str, str]
"""(tenant, user)."""

AHEAD_BYTES: Final = 16 * 1024
"""Of prompts that are handed to the thread together, so that it need not wait for the event loop between small ones; some
milliseconds of its time, for which a turn may come late."""
MAX_REMEMBERED: Final = 1024
"""Users whose last turn is remembered; more cannot wait at once."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One prompt; `order` is that of arrival. Owned by the queue that gave it."""

    order: int
    user: User
    num_bytes: int


class PromptQueue:
    """Owns who waits for the thread and who has it. At most `max_prompts` and `max_bytes`, but one alone has any size."""

    def __init__(self, *, max_prompts: int, max_bytes: int) -> None:
        self._max_prompts = max_prompts
        self._max_bytes = max_bytes
        self._num_tickets = 0
        self._num_bytes = 0
        self._taken: set[Ticket] = set()
        self._taken_bytes = 0
        self._lines: Lines[User, Ticket] = Lines()
        self._turns: OrderedDict[User, int] = OrderedDict()  # the last one of each user, the latest last
        self._num_turns = 0

    def __len__(self) -> int:
        """Prompts that wait or are worked on."""
        return len(self._lines) + len(self._taken)

    def enter(self, user: User, num_bytes: int) -> Ticket:
        """Return the ticket of a prompt that came; it waits until it is taken, or crowded out."""
        self._num_tickets += 1
        ticket = Ticket(self._num_tickets, user, num_bytes)
        self._lines.append(user, ticket)
        self._num_bytes += num_bytes
        return ticket

    def crowded_out(self) -> Ticket | None:
        """Return who has to go, as too much is here; perhaps who came last. It has not gone yet."""
        too_many = len(self) > self._max_prompts
        if not (too_many or (self._num_bytes > self._max_bytes and len(self) > 1)):
            return None
        return self._lines.crowded_out(len if too_many else _num_bytes)

    def take(self) -> Ticket | None:
        """Return who is next, None where the thread has enough to do."""
        if not len(self._lines):
            return None
        user = min(self._lines, key=lambda name: self._turns.get(name, 0))
        ticket = self._lines.first(user)
        if self._taken and self._taken_bytes + ticket.num_bytes > AHEAD_BYTES:
            return None
        self._lines.remove(user, ticket)
        self._num_turns += 1
        self._turns[user] = self._num_turns
        self._turns.move_to_end(user)
        if len(self._turns) > MAX_REMEMBERED:
            self._turns.popitem(last=False)
        self._taken.add(ticket)
        self._taken_bytes += ticket.num_bytes
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """A prompt is done, or given up; the second time nothing happens."""
        if ticket in self._taken:
            self._taken.remove(ticket)
            self._taken_bytes -= ticket.num_bytes
        elif not self._lines.remove(ticket.user, ticket):
            return
        self._num_bytes -= ticket.num_bytes


def _num_bytes(line: Collection[Ticket]) -> int:
    return sum(ticket.num_bytes for ticket in line)
