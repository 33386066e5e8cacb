"""The client against `headway serve`, whose processes are killed and stopped while it asks."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from headway.client import AnswerCut, Client, DeadlinePassed, Deadlines, Endpoint, Refused, Stream
from support.real_server import RealServer, eventually, real_server

pytestmark = pytest.mark.native

PATIENT = Deadlines(first_token_s=60, total_s=60)


def endpoint(server: RealServer) -> Endpoint:
    return Endpoint(url=server.url, model="tiny", name="tiny")


async def first_text(client: Client, deadlines: Deadlines) -> tuple[Stream, asyncio.Task[str]]:
    """Start a long answer; return its stream after its first text, and what takes the rest."""
    stream = client.stream(
        prompt="self", deadlines=deadlines, max_tokens=30_000, ignore_eos=True, temperature=0
    )
    await anext(stream)

    async def rest() -> str:
        async with stream:
            return (await stream.collect()).text

    return stream, asyncio.ensure_future(rest())


def test_whole_answers_are_the_servers(shared_server: RealServer) -> None:
    async def main() -> None:
        async with Client([endpoint(shared_server)], deadlines=PATIENT) as client:
            answer = await client.complete("self", temperature=0, max_tokens=16, ignore_eos=True)
            expected = shared_server.complete("self", max_tokens=16).json()
            assert answer.text == expected["choices"][0]["text"]
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 16
            chat = await client.chat([{"role": "user", "content": "self"}], temperature=0, max_tokens=16)
            assert chat.finish_reason in ("stop", "length")
            with pytest.raises(Refused) as raised:
                await client.complete("self", temperature=-1)
            assert (raised.value.status, raised.value.param) == (400, "temperature")

    asyncio.run(main())


def test_leaving_frees_the_server(shared_server: RealServer) -> None:
    async def main() -> None:
        async with Client([endpoint(shared_server)], deadlines=PATIENT) as client:
            _, rest = await first_text(client, PATIENT)
            assert not shared_server.is_idle()
            rest.cancel()
            await asyncio.wait({rest})

    asyncio.run(main())
    assert eventually(shared_server.is_idle)


def test_a_server_killed_in_the_middle_cuts_the_answer_and_the_next_call_falls_back(
    tiny_model: Path, tmp_path: Path, shared_server: RealServer
) -> None:
    async def main(server: RealServer) -> None:
        chain = [endpoint(server), Endpoint(url=shared_server.url, model="tiny", name="other")]
        async with Client(chain, deadlines=PATIENT) as client:
            stream, rest = await first_text(client, PATIENT)
            server.signal(signal.SIGKILL)
            with pytest.raises(AnswerCut) as raised:
                await rest
            assert raised.value.text == stream.text
            assert raised.value.text
            answer = await client.complete("self", max_tokens=4, temperature=0)
            assert answer.endpoint == "other"
            assert [each.outcome for each in answer.attempts] == ["unreachable", "answered"]

    with real_server(tiny_model, tmp_path) as server:
        engine = server.engine_pid
        try:
            asyncio.run(main(server))
        finally:
            assert eventually(lambda: not Path(f"/proc/{engine}").exists())


def test_a_server_that_stops_is_given_up_at_the_deadline(tiny_model: Path, tmp_path: Path) -> None:
    async def main(server: RealServer) -> None:
        async with Client([endpoint(server)], deadlines=PATIENT, throttling=None) as client:
            _, rest = await first_text(client, Deadlines(first_token_s=60, total_s=60, idle_s=0.2))
            for pid in (server.process.pid, server.engine_pid):
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(AnswerCut, match="silent"):
                await rest
            with pytest.raises(DeadlinePassed):
                await client.complete("self", deadlines=Deadlines(first_token_s=0.2), max_tokens=4)
            for pid in (server.process.pid, server.engine_pid):
                os.kill(pid, signal.SIGCONT)
            assert (await client.complete("self", max_tokens=4)).text

    with real_server(tiny_model, tmp_path) as server:
        asyncio.run(main(server))
