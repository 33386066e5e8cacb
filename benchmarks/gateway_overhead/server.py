"""The service as `headway serve` makes it, but for the model: a process on one core, until its input ends.

    python -m gateway_overhead.server --core 0 [--tokens FILE] [--streams PLACE] [--in-turns]      prints its port

Real are uvicorn on uvloop with the command's protocols and settings, the application with all its layers, the tokens' store
in SQLite, the limits, the log of streams, metrics and the access log, which is formatted and written to standard error.
"""

import argparse
import asyncio
import gc
import os
import sys
import time
from pathlib import Path

import uvicorn
import uvloop

from gateway_overhead.model import NAME, ByteTokenizer, PlainTemplate, ScriptedEngine
from headway.access.config import AccessConfig, TokensConfig
from headway.cli.access_file import AccessSettings, open_door
from headway.cli.http_server import bind, uvicorn_config
from headway.cli.service import Service
from headway.core.clock import NS_PER_MS, MonotonicClock
from headway.flow.config import LimitsConfig
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.gateway.served import ServedModel
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.obs.logs import configure
from headway.obs.metrics import Metrics
from headway.streams.limits import StreamLimits
from headway.streams.places import open_log

LIMITS = LimitsConfig(tokens_per_min=10_000_000, max_concurrent=1000)
"""The others by default; these two so that nothing is left out of what a call takes, and nothing refused."""


async def build(tokens: Path | None, place: str, *, in_turns: bool = False) -> Service:
    """Return the service. `tokens`: the store of those that may call; None = nobody is asked."""
    clock, metrics, engine = MonotonicClock(), Metrics(), ScriptedEngine(in_turns=in_turns)
    access = None
    if tokens is not None:
        access = AccessSettings(access=AccessConfig(tokens=TokensConfig(store=str(tokens))), limits=LIMITS)
    served = ServedModel(
        name=NAME,
        engine=engine,
        tokenizer=ByteTokenizer(),
        chat_template=PlainTemplate(),
        created_s=int(time.time()),
    )
    log = await open_log(place, StreamLimits(), lambda: time.time_ns() // NS_PER_MS)
    gateway = Gateway(
        {NAME: served},
        config=GatewayConfig(streams=place),
        clock=clock,
        wall_time_s=time.time,
        hook=metrics,
        metrics=metrics.page,
        door=await open_door(access, clock, metrics),
        streams=Streams(log, clock, StreamTerms(keeps_steps=place != "memory"), tell=metrics),
    )
    return Service(app=create_app(gateway), gateway=gateway, engine=engine)


async def serve(tokens: Path | None, place: str, *, in_turns: bool) -> None:
    """Serve on loopback until standard input ends."""
    ended = asyncio.Event()

    class Watch(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
            ended.set()

    with bind("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn_config(await build(tokens, place, in_turns=in_turns)))
        listener.listen(4096)
        gc.freeze()  # as the command does
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        print(listener.getsockname()[1], flush=True)
        await asyncio.get_running_loop().connect_read_pipe(Watch, sys.stdin)
        await ended.wait()
        server.should_exit = True
        await serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="gateway_overhead.server")
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--streams", default="memory")
    parser.add_argument("--in-turns", action="store_true")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    configure()
    uvloop.run(serve(args.tokens, args.streams, in_turns=args.in_turns))


if __name__ == "__main__":
    main()
