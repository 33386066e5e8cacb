"""What waits, by class and tenant, and whose is too much."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.request import Request, ServiceClass
from headway.engine.queue_counts import QueueCounts, Queued
from support.engine_on_fake import make_request

LIMITS = SchedulerConfig(max_queued_requests=100, max_queued_tokens=1000)


def request(
    tenant: str, service_class: ServiceClass = "normal", *, num_tokens: int = 1, n: int = 1
) -> Request:
    found = make_request("r", range(num_tokens), n=n, tenant=tenant)
    return msgspec.structs.replace(found, service_class=service_class)


def test_each_class_has_a_line_of_its_own() -> None:
    counts = QueueCounts()
    counts.enter(request("a", "low", num_tokens=3, n=2))
    assert counts.of_class("low") == Queued(2, 6)
    assert counts.of_class("high") == Queued(0, 0)


def test_the_tenant_with_most_gives_way_to_one_with_less() -> None:
    counts = QueueCounts()
    assert counts.gives_way(request("a"), LIMITS) is None
    counts.enter(request("a", n=3))
    counts.enter(request("b"))
    assert counts.gives_way(request("c"), LIMITS) == "a"
    assert counts.gives_way(request("b"), LIMITS) == "a"
    assert counts.gives_way(request("b", n=2), LIMITS) is None  # then it would have as much
    assert counts.gives_way(request("a"), LIMITS) is None  # it has most itself
    assert counts.gives_way(request("c", "low"), LIMITS) is None  # another line


def test_long_prompts_count_for_what_they_take() -> None:
    counts = QueueCounts()
    counts.enter(request("a", num_tokens=400))
    counts.enter(request("b", n=30))
    assert counts.gives_way(request("c"), LIMITS) == "a"


tenants = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(tenants, st.integers(1, 4), st.integers(1, 50)), max_size=30))
def test_when_all_have_left_nothing_is_left(came: list[tuple[str, int, int]]) -> None:
    counts = QueueCounts()
    requests = [request(tenant, n=n, num_tokens=num_tokens) for tenant, n, num_tokens in came]
    for one in requests:
        counts.enter(one)
    for one in requests:
        for _ in range(one.n):
            counts.leave(one)
    assert counts.of_class("normal") == Queued(0, 0)
    assert counts.gives_way(request("a"), LIMITS) is None
