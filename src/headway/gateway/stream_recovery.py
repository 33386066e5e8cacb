"""Goes on with streams that another process began, and left in the log when it ended."""

from collections.abc import Mapping
from typing import Any

from headway.core.errors import EngineDied
from headway.gateway.gateway import Gateway
from headway.gateway.generate import Endpoint
from headway.gateway.replay import replay
from headway.gateway.request_record import RequestRecord
from headway.gateway.step_record import decode_steps
from headway.gateway.stored_call import decode_call
from headway.gateway.streams import Begun, GoOn
from headway.streams.record import Recovery


def recovery_of(gateway: Gateway, endpoints: Mapping[str, Endpoint[Any]]) -> GoOn:
    """Return what makes the rest of a stream, for `Streams.begin`. `endpoints`: by the paths of their routes."""

    async def go_on(recovery: Recovery) -> Begun:
        """Raises EngineDied, EngineUnavailable, Draining; msgspec.DecodeError for what another version wrote."""
        stored = decode_call(recovery.record.meta)
        served = gateway.models.get(stored.head.model)
        endpoint = endpoints.get(stored.endpoint)
        if served is None or endpoint is None:
            raise EngineDied(f"The model `{stored.head.model}` is not served here any more.")
        await served.engine.wait_ready()
        record = RequestRecord(
            request_id=stored.requests[0].request_id.rpartition("-")[0],
            model=served.name,
            service_class=stored.terms.service_class,
            arrival_ns=gateway.clock.now_ns(),
            clock=gateway.clock,
            hook=gateway.hook,
            caller=stored.caller,
            endpoint=stored.endpoint,
        )
        steps = decode_steps(b"".join(recovery.progress))
        return Begun(*replay(endpoint, served, stored, steps, record), record)

    return go_on
