"""Who is let in, on which terms, and within which limits, as seen over HTTP."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest

from headway.core.caller import Caller, CallerLimits
from headway.core.clock import ManualClock
from headway.core.errors import AccessUnavailable, QueueFull, Unauthenticated
from headway.core.events import CallEnded, Event, RiskAssessed, StreamAbandoned
from headway.core.messages import ErrorInfo, Finished, Usage
from headway.core.secret import Secret
from headway.flow.config import LimitsConfig
from headway.flow.limits import Admission
from headway.flow.local import HARD_BOUND, LocalLimits
from headway.flow.signals import Signal
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door, network_of
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from support.asgi_client import Exchange
from support.gateway_app import MODEL, Service, service
from support.scripted_client import Script, answering

pytestmark = pytest.mark.anyio

PROMPT = [{"role": "user", "content": "hi"}]


class Known:
    """Knows the callers that the test names by their tokens."""

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self.callers = callers
        self.failure: Exception | None = None
        self.is_closed = False

    async def identify(self, shown: Secret | None) -> Caller:
        if self.failure is not None:
            raise self.failure
        if shown is None or shown.reveal() not in self.callers:
            raise Unauthenticated("No.")
        return self.callers[shown.reveal()]

    async def close(self) -> None:
        self.is_closed = True


def caller(name: str, **fields: object) -> Caller:
    return Caller(token_id=f"tok_{name}", user=name, tenant=f"tenant of {name}", **fields)  # type: ignore[arg-type]


class Guarded:
    """A service that knows ann and bob, and an operator."""

    def __init__(
        self,
        limits: CallerLimits | None = None,
        script: Script | None = None,
        config: LimitsConfig | None = None,
        *,
        trust_headers: bool = False,
        grace_s: float = 1000,
        region_header: str | None = None,
    ) -> None:
        self.clock = ManualClock(5_000_000_000)
        own = limits or CallerLimits()
        self.known = Known(
            {
                "ann": caller("ann", limits=own),
                "bob": caller("bob", service_class="low"),
                "proxy": caller("proxy", kind="service"),
                "operator": caller("operator", kind="admin"),
            }
        )
        self.limits = LocalLimits(config or LimitsConfig(), self.clock)
        self.told: list[Event] = []
        self.s: Service = service(
            script,
            door=Door(self.known, self.limits, region_header),
            streams=Streams(
                MemoryLog(StreamLimits(), lambda: 1_800_000_000_000),
                self.clock,
                StreamTerms(grace_s=grace_s),
                tell=self.told.append,
            ),
            config=GatewayConfig(trust_headers=trust_headers),
            pooling="mean",
        )

    def ask(self, who: str, headers: Mapping[str, str] | None = None, **fields: object) -> Exchange:
        body = {"model": MODEL, "messages": PROMPT, **fields}
        return self.s.post(
            "/v1/chat/completions", body, {"authorization": f"Bearer {who}", **(headers or {})}
        )


async def tokens_left(g: Guarded, who: str) -> int:
    shown = await g.limits.show(g.known.callers[who])
    assert shown.quotas.tokens is not None
    return shown.quotas.tokens.remaining


async def test_nobody_is_let_in_who_does_not_say_who_he_is() -> None:
    g = Guarded(script=answering("yes"))
    async with g.ask("nobody") as exchange:
        assert await exchange.read_status() == 401
        assert exchange.headers["www-authenticate"].startswith("Bearer")
    assert g.s.engine.requests == []
    async with g.ask("ann") as exchange:
        assert await exchange.read_status() == 200
    for path in ("/health", "/ready", "/openapi.json"):
        async with g.s.get(path) as exchange:
            assert await exchange.read_status() == 200
    async with g.s.get("/v1/models") as exchange:
        assert await exchange.read_status() == 401


@pytest.mark.parametrize(("who", "status"), [("ann", 403), ("proxy", 200), ("operator", 200), ("x", 401)])
async def test_metrics_are_for_those_who_run_the_server(who: str, status: int) -> None:
    g = Guarded()
    g.s.gateway.metrics = lambda: ("text/plain", b"x 1")
    async with g.s.get("/metrics", {"authorization": f"Bearer {who}"}) as exchange:
        assert await exchange.read_status() == status


async def test_a_store_that_fails_is_not_the_callers_fault() -> None:
    g = Guarded()
    g.known.failure = AccessUnavailable("Gone.")
    async with g.ask("ann") as exchange:
        assert await exchange.read_status() == 503
        assert "retry-after" in exchange.headers


@pytest.mark.parametrize("trust_headers", [False, True])
async def test_a_token_says_tenant_and_class_whatever_its_headers_say(trust_headers: bool) -> None:
    g = Guarded(script=answering("yes"), trust_headers=trust_headers)
    forged = {"x-headway-class": "high", "x-headway-tenant": "other", "x-headway-session": "s"}
    for who in ("ann", "bob", "proxy"):
        async with g.ask(who, forged) as exchange:
            await exchange.read_body()
    terms = [(one.service_class, one.tenant, one.session) for one in g.s.engine.requests]
    spoken_for = ("high", "other", "s") if trust_headers else ("normal", "tenant of proxy", "s")
    assert terms == [("normal", "tenant of ann", "s"), ("low", "tenant of bob", "s"), spoken_for]


async def test_a_caller_may_be_less_urgent_than_his_token() -> None:
    g = Guarded(script=answering("yes"))
    async with g.ask("ann", {"x-headway-class": "low"}) as exchange:
        await exchange.read_body()
    assert g.s.engine.requests[0].service_class == "low"


async def test_of_a_hundred_calls_at_once_as_many_pass_as_may() -> None:
    g = Guarded(CallerLimits(max_concurrent=5))
    async with AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(g.ask("ann")) for _ in range(100)]
        await g.s.engine.wait_requests(5)
        refused = [one for one in calls if (await _settled(one)) == 429]
        assert len(refused) == 95
        assert all("retry-after" in one.headers for one in refused)
        for request in list(g.s.engine.requests):
            g.s.engine.emit(request, [65])
            g.s.engine.finish(request)
        passed = [one for one in calls if one not in refused]
        assert [await one.read_status() for one in passed] == [200] * 5
    async with g.ask("ann") as exchange:
        await g.s.engine.wait_requests(6)
        g.s.engine.finish(g.s.engine.requests[5])
        assert await exchange.read_status() == 200


async def _settled(exchange: Exchange) -> int | None:
    """Return the status of a call that was refused, None of one that waits for its answer."""
    for _ in range(20):
        await asyncio.sleep(0)
    return None if exchange.is_waiting else await exchange.read_status()


async def test_a_refused_request_burns_no_other_budget() -> None:
    limits = CallerLimits(tokens_per_min=100, max_concurrent=1)
    g = Guarded(limits)
    async with g.ask("ann", max_tokens=10) as first:
        await g.s.engine.wait_requests(1)
        held = await tokens_left(g, "ann")
        async with g.ask("ann", max_tokens=10) as second:
            assert await second.read_status() == 429
        assert await tokens_left(g, "ann") == held
        g.s.engine.finish(g.s.engine.requests[0])
        await first.read_body()
    before = await g.limits.show(g.known.callers["ann"])
    async with g.ask("ann", max_tokens=40, n=3) as exchange:  # more than a minute has
        assert await exchange.read_status() == 400
        assert (await exchange.read_json())["error"]["code"] == "tokens_over_limit"  # type: ignore[index]
    after = await g.limits.show(g.known.callers["ann"])
    assert after.quotas.tokens == before.quotas.tokens
    assert (after.num_calls, after.risk) == (0, 0)  # it was well made


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("include_usage", [False, True])
async def test_what_was_used_is_charged_and_the_rest_given_back(stream: bool, include_usage: bool) -> None:
    g = Guarded(CallerLimits(tokens_per_min=1000), answering("four"))
    options = {"include_usage": include_usage} if stream else None
    async with g.ask("ann", stream=stream, max_tokens=40, stream_options=options) as exchange:
        await exchange.read_body()
        assert int(exchange.headers["x-ratelimit-remaining-tokens"]) < 1000 - 40
        assert exchange.headers["x-ratelimit-limit-requests"] == "100"
    prompt = len(g.s.engine.requests[0].token_ids)
    assert await tokens_left(g, "ann") == 1000 - prompt - 4


async def test_what_the_engine_refuses_costs_nothing() -> None:
    g = Guarded(CallerLimits(tokens_per_min=1000))
    g.s.engine.refuse = QueueFull("Full.")
    async with g.ask("ann", max_tokens=40) as exchange:
        assert await exchange.read_status() == 503
    assert await tokens_left(g, "ann") == 1000


async def test_of_many_texts_those_cost_that_the_engine_began() -> None:
    g = Guarded(CallerLimits(tokens_per_min=1000))
    texts = {"input": ["four", "six of", "a"]}
    async with g.s.post("/v1/embeddings", texts, {"authorization": "Bearer ann"}) as exchange:
        await g.s.engine.wait_requests(3)
        begun, refused, _ = g.s.engine.requests
        g.s.engine.emit_end(begun, _end(begun.request_id, 4, embedding=b"\0" * 8))
        full = ErrorInfo(code="queue_full", message="Full.", retry_after_s=1)
        g.s.engine.emit_end(refused, _end(refused.request_id, 6, error=full))
        assert await exchange.read_status() == 503
    assert await tokens_left(g, "ann") == 1000 - len("four") - len("a")


def _end(request_id: str, num_tokens: int, **fields: object) -> Finished:
    usage = Usage(prompt_tokens=num_tokens, completion_tokens=0)
    return Finished(request_id=request_id, usage=usage, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("resumable", [False, True])
async def test_after_hundreds_of_cancelled_calls_the_balance_is_exact(resumable: bool) -> None:
    g = Guarded(CallerLimits(tokens_per_min=100_000, max_concurrent=300), config=LimitsConfig(burst_s=100))
    draw = random.Random(4)
    headers = {"x-headway-resumable": "1"} if resumable else {}
    for _ in range(300):
        async with g.ask("ann", headers, stream=True, max_tokens=20):
            for _ in range(draw.randrange(60)):
                await asyncio.sleep(0)
            for request in [one for one in g.s.engine.requests if one.request_id in g.s.engine.live]:
                for _ in range(draw.randrange(4)):
                    g.s.engine.emit(request, [65])
                if draw.random() < 0.3:
                    g.s.engine.finish(request)
    assert g.s.gateway.streams is not None
    await g.s.gateway.streams.close()
    await g.s.gateway.wait_idle()
    ended = [event for event in g.s.ended if event.outcome != "refused" and event.usage is not None]
    used = sum(event.usage.prompt_tokens + event.usage.completion_tokens for event in ended if event.usage)
    assert used > 0, [(event.outcome, event.status, event.usage) for event in g.s.ended][:5]
    assert await tokens_left(g, "ann") == 100_000 - used
    assert (await g.limits.show(g.known.callers["ann"])).num_calls == 0


async def test_a_stream_is_found_by_its_own_token_alone() -> None:
    g = Guarded()
    async with g.ask("ann", {"x-headway-resumable": "1"}, stream=True) as exchange:
        await g.s.engine.wait_requests(1)
        g.s.engine.emit(g.s.engine.requests[0], [65])
        await exchange.read_status()
        path = f"/v1/streams/{exchange.headers['x-headway-stream']}"
        for who, status in (("bob", 404), ("operator", 404), ("ann", 200)):
            async with g.s.get(path, {"authorization": f"Bearer {who}"}) as again:
                assert await again.read_status() == status
        async with g.s.post(f"{path}/ack", {"seq": 1}, {"authorization": "Bearer bob"}) as ack:
            assert await ack.read_status() == 404


async def test_a_call_that_is_turned_away_is_told_under_the_route_that_it_wanted() -> None:
    g = Guarded(script=answering("yes"), config=LimitsConfig(requests_per_s=1, floor_per_s=1))
    ann = {"authorization": "Bearer ann"}
    for exchange in (
        g.ask("nobody"),
        g.ask("ann"),
        g.ask("ann"),
        g.s.post("/v1/messages", b"{}", ann),
        g.s.get("/v1/streams/0123", ann),
        g.s.get("/v1/chat/completions", ann),
        g.s.get("/v1/nothing/secret", ann),
    ):
        async with exchange:
            await exchange.read_body()
    calls = [event for event in g.s.events if isinstance(event, CallEnded)]
    assert [(call.endpoint, call.status) for call in calls] == [
        ("/v1/chat/completions", 401),
        ("/v1/chat/completions", 200),
        ("/v1/chat/completions", 429),
        ("/v1/messages", 429),
        ("/v1/streams/{stream}", 429),
        ("/v1/chat/completions", 429),
        ("", 429),
    ]


async def test_who_guesses_tokens_is_slowed_and_nobody_else() -> None:
    g = Guarded(script=answering("yes"), config=LimitsConfig(requests_per_s=20, floor_per_s=2))
    statuses = []
    for number in range(60):
        async with g.ask(f"guess{number}") as exchange:
            statuses.append(await exchange.read_status())
    assert statuses[0] == 401
    assert statuses[-1] == 429
    async with g.ask("ann") as exchange:
        assert await exchange.read_status() == 200


async def test_who_sends_nonsense_is_slowed_and_told_why() -> None:
    g = Guarded(script=answering("yes"))
    for path in ("/v1/nothing", "/v1/chat/completions"):
        for _ in range(20):
            async with g.s.post(path, b"{", {"authorization": "Bearer ann"}) as exchange:
                assert await exchange.read_status() in (400, 404)
    shown = await g.limits.show(g.known.callers["ann"])
    assert shown.requests_per_s < 100
    assert "malformed" in str(shown.why)


async def test_clients_and_regions_that_a_user_never_had_before_are_held_against_him() -> None:
    g = Guarded(script=answering("yes"), region_header="CF-IPCountry")
    home = {"user-agent": "editor/1", "cf-ipcountry": "DE"}

    async def signals(*asked: dict[str, str]) -> list[str]:
        for headers in asked:
            async with g.ask("ann", headers) as exchange:
                assert await exchange.read_status() == 200
        return [part.signal for part in (await g.limits.show(g.known.callers["ann"])).why]

    assert await signals(home, home) == []
    assert await signals({**home, "cf-ipcountry": "BR"}) == ["new_region"]
    assert await signals({**home, "user-agent": "scan/1"}) == ["new_region", "new_fingerprint"]
    assert (await g.limits.show(g.known.callers["bob"])).why == ()


async def test_a_region_that_no_proxy_was_said_to_tell_counts_for_nothing() -> None:
    g = Guarded(script=answering("yes"))
    for region in ("DE", "BR"):
        async with g.ask("ann", {"cf-ipcountry": region}) as exchange:
            assert await exchange.read_status() == 200
    assert (await g.limits.show(g.known.callers["ann"])).why == ()


async def test_leaving_closes_what_the_door_holds() -> None:
    g = Guarded()
    await g.s.gateway.door.close()
    assert g.known.is_closed


async def test_with_the_last_place_in_use_its_stream_can_still_be_read() -> None:
    g = Guarded(CallerLimits(max_concurrent=1))
    async with g.ask("ann", {"x-headway-resumable": "1"}, stream=True) as exchange:
        await g.s.engine.wait_requests(1)
        g.s.engine.emit(g.s.engine.requests[0], [65])
        await exchange.read_status()
    who = {"authorization": "Bearer ann"}
    async with g.s.get(f"/v1/streams/{exchange.headers['x-headway-stream']}", who) as again:
        assert await again.read_status() == 200
        async with g.ask("ann") as other:
            assert await other.read_status() == 429
        g.s.engine.finish(g.s.engine.requests[0])
        await again.read_body()
    await g.s.gateway.wait_idle()
    assert (await g.limits.show(g.known.callers["ann"])).num_calls == 0


async def test_who_tries_names_of_streams_is_slowed() -> None:
    g = Guarded()
    for number in range(20):
        async with g.s.get(f"/v1/streams/{number:032x}", {"authorization": "Bearer ann"}) as exchange:
            assert await exchange.read_status() == 404
    assert (await g.limits.show(g.known.callers["ann"])).requests_per_s < 100


async def test_calls_to_streams_take_of_the_rate_but_acknowledgements_that_make_sense() -> None:
    g = Guarded(script=answering("yes"), config=LimitsConfig(requests_per_s=8, floor_per_s=1))
    who = {"authorization": "Bearer ann"}
    async with g.ask("ann", {"x-headway-resumable": "1"}, stream=True) as exchange:
        await exchange.read_body()
    path = f"/v1/streams/{exchange.headers['x-headway-stream']}"
    for _ in range(20):
        async with g.s.post(f"{path}/ack", {"seq": 1}, who) as ack:
            assert await ack.read_status() == 204
    assert await _statuses(g, "GET", f"{path}?after=2", 7) == [200] * 7
    assert await _statuses(g, "GET", path, 1) == [429]
    assert await _statuses(g, "DELETE", path, 1) == [429]
    async with g.s.post(f"{path}/ack", {"seq": 1}, who) as ack:
        assert await ack.read_status() == 204


@pytest.mark.parametrize("body", [b'{"seq":1}', b"{", b"x" * 100_000])
async def test_who_acknowledges_nonsense_on_and_on_is_refused(body: bytes) -> None:
    g = Guarded(config=LimitsConfig(requests_per_s=8, floor_per_s=1))
    statuses = await _statuses(g, "POST", f"/v1/streams/{'0' * 32}/ack", 9, body)
    assert statuses[0] in (400, 404, 413)
    assert statuses[-1] == 429


async def _statuses(g: Guarded, method: str, path: str, times: int, body: bytes = b"") -> list[int]:
    found = []
    for _ in range(times):
        async with Exchange(g.s.app, method, path, body, {"authorization": "Bearer ann"}) as exchange:
            found.append(await exchange.read_status())
    return found


async def test_a_limit_that_is_not_the_callers_is_no_nonsense_of_his() -> None:
    g = Guarded()
    async with g.ask("ann") as exchange:
        await g.s.engine.wait_requests(1)
        limited = ErrorInfo(code="upstream_limited", message="Later.", retry_after_s=7)
        g.s.engine.fail(g.s.engine.requests[0], limited)
        assert await exchange.read_status() == 429
    assert (await g.limits.show(g.known.callers["ann"])).risk == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_guesses_are_accounted_to_the_network_that_one_customer_has(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_strangers_push_out_no_caller() -> None:
    clock = ManualClock(1)
    config = LimitsConfig(max_users=3)
    callers, strangers = LocalLimits(config, clock), LocalLimits(config, clock)
    door = Door(Known({}), callers, strangers=strangers)
    await callers.note(caller("ann"), Signal("malformed"))
    for number in range(50):
        with pytest.raises(Unauthenticated):
            await door.caller([], f"192.0.2.{number}")
    assert len(callers) == 1
    assert len(strangers) <= HARD_BOUND * 3


async def _abandoned_level(g: Guarded) -> float:
    shown = await g.limits.show(g.known.callers["ann"])
    return sum(part.level for part in shown.why if part.signal == "abandoned")


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_that_are_left_tell_of_their_caller_and_those_read_make_up_for_them(
    stream: bool,
) -> None:
    g = Guarded()
    for number in range(3):
        async with g.ask("ann", stream=stream) as exchange:
            await g.s.engine.wait_requests(number + 1)
            g.s.engine.emit(g.s.engine.requests[-1], [65])
            if stream:
                await exchange.read_status()
        await g.s.gateway.wait_idle()
    assert await _abandoned_level(g) == 3
    async with g.ask("ann", stream=stream) as exchange:
        await g.s.engine.wait_requests(4)
        g.s.engine.finish(g.s.engine.requests[-1])
        await exchange.read_body()
    assert await _abandoned_level(g) == 2


async def test_a_resumable_stream_is_left_when_its_grace_is_over() -> None:
    g = Guarded(grace_s=0)
    resumable = {"x-headway-resumable": "1"}
    async with g.ask("ann", resumable, stream=True) as exchange:
        await g.s.engine.wait_requests(1)
        g.s.engine.emit(g.s.engine.requests[0], [65])
        await exchange.read_status()
        assert await _abandoned_level(g) == 0
    await g.s.gateway.wait_idle()
    assert await _abandoned_level(g) == 1
    assert g.told == [StreamAbandoned(num_unacknowledged=2)]  # the role, and a token
    async with g.ask("ann", resumable, stream=True):  # and so is one that nobody can come back to
        await g.s.engine.wait_requests(2)
    await g.s.gateway.wait_idle()
    assert await _abandoned_level(g) == 2


async def test_a_resumable_stream_that_ends_within_its_grace_makes_up_for_another_only_if_it_is_read() -> (
    None
):
    g = Guarded()
    async with g.ask("ann", stream=True) as exchange:
        await g.s.engine.wait_requests(1)
    await g.s.gateway.wait_idle()
    for number, is_read in ((2, False), (3, True)):
        async with g.ask("ann", {"x-headway-resumable": "1"}, stream=True) as exchange:
            await g.s.engine.wait_requests(number)
            request = g.s.engine.requests[-1]
            g.s.engine.emit(request, [65])
            await exchange.read_status()
            if is_read:
                g.s.engine.finish(request)
                await exchange.read_body()
        if not is_read:
            g.s.engine.finish(request)
        await g.s.gateway.wait_idle()
        assert await _abandoned_level(g) == (0 if is_read else 1)


async def test_a_server_that_ends_answers_does_not_hold_it_against_their_callers() -> None:
    g = Guarded()
    async with g.ask("ann", stream=True) as exchange:
        await g.s.engine.wait_requests(1)
        g.s.engine.fail(g.s.engine.requests[0], ErrorInfo(code="engine_died", message="Gone."))
        await exchange.read_body()
    assert await _abandoned_level(g) == 0


class Slow(LocalLimits):
    """Never gets to give a place back; notes the signals it hears."""

    def __init__(self) -> None:
        super().__init__(LimitsConfig(), ManualClock())
        self.signals: list[Signal] = []
        self.is_asked = asyncio.Event()

    async def note(self, caller: Caller, signal: Signal) -> None:
        self.signals.append(signal)
        await super().note(caller, signal)

    async def release(self, admission: Admission) -> None:
        del admission
        self.is_asked.set()
        await asyncio.Event().wait()


async def test_a_call_is_told_of_also_if_its_end_is_cut_off() -> None:
    events: list[Event] = []
    limits = Slow()
    door = Door(limits=limits, tell=events.append)

    async def call() -> None:
        async with door.call(caller("ann"), []):
            pass

    calling = asyncio.create_task(call())
    await limits.is_asked.wait()
    calling.cancel()
    await asyncio.wait({calling})
    assert events == [RiskAssessed(risk=0.0)]


async def test_of_a_client_program_so_much_is_kept_as_tells_it_apart() -> None:
    limits = Slow()
    door = Door(limits=limits)
    for agent in (b"a" * 60_000 + b"1", b"a" * 50_000 + b"2", b"b"):
        await door.admit(caller("ann"), [(b"user-agent", agent)])
    first, second, other = [signal.value for signal in limits.signals]
    assert first == second
    assert first != other
