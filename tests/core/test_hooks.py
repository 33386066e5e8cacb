import pytest

from headway.core.events import Event, FlowDegraded, StreamAbandoned
from headway.core.hooks import also, emit


def broken(event: Event) -> None:
    raise RuntimeError(type(event).__name__)


def test_a_hook_that_fails_is_logged_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    emit(broken, StreamAbandoned())
    assert "a hook failed on StreamAbandoned" in caplog.text


def test_nobody_need_listen() -> None:
    emit(None, StreamAbandoned())


def test_a_second_listener_hears_its_own_kind_only() -> None:
    heard: list[Event] = []
    own: list[FlowDegraded] = []
    hook = also(heard.append, FlowDegraded, own.append)
    events: list[Event] = [StreamAbandoned(), FlowDegraded(degraded=True)]
    for event in events:
        hook(event)
    assert heard == events
    assert own == events[1:]


@pytest.mark.parametrize("first_fails", [True, False])
def test_a_listener_that_fails_does_not_keep_the_event_from_the_other(first_fails: bool) -> None:
    heard: list[Event] = []
    hook = (
        also(broken, FlowDegraded, heard.append) if first_fails else also(heard.append, FlowDegraded, broken)
    )
    emit(hook, FlowDegraded(degraded=True))
    assert heard == [FlowDegraded(degraded=True)]
