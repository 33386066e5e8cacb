"""Telling a hook what happened, such that its bug stays its own."""

import logging
from collections.abc import Callable
from typing import TypeVar

from headway.core.events import Event, Hook

logger = logging.getLogger("headway.hooks")

E = TypeVar("E", bound=Event)


def emit(hook: Hook | None, event: Event) -> None:
    """Tell `hook`; whatever it raises is logged and goes no further. None = nobody listens."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("a hook failed on %s", type(event).__name__)


def also(hook: Hook, kind: type[E], listener: Callable[[E], object]) -> Hook:
    """Return a hook that tells `hook` everything, and `listener` what is a `kind`; neither's bug keeps from the other."""

    def both(event: Event) -> None:
        emit(hook, event)
        if isinstance(event, kind):
            listener(event)

    return both
