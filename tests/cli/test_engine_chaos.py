"""The engine process is killed twenty times while eight streams run: each stream ends with the text it would have had."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from support.real_server import RealServer, eventually, parse, real_server, wait_for_engine

pytestmark = pytest.mark.native

NUM_STREAMS, NUM_KILLS, NUM_TOKENS = 8, 20, 2000
SCRIPT = """
from headway.cli.main import main
from headway.engine.lifecycle import Backoff
Backoff.FIRST_S = 0.0
raise SystemExit(main())
"""
WITHOUT_BACK_OFF = (sys.executable, "-c", SCRIPT)
"""`headway`, except that it never waits before it restarts an engine: twenty ends in a row would take ten minutes."""


def sampling(number: int) -> dict[str, object]:
    fields: dict[str, object] = {"seed": number, "temperature": 0.8, "n": 2 if number % 4 == 0 else 1}
    fields |= {"presence_penalty": 0.4, "repetition_penalty": 1.1} if number % 3 == 0 else {}
    return fields


@dataclass
class Streams:
    """What has come of all streams, counted by threads that read them."""

    counts: Counter[int] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)
    news: threading.Condition = field(default_factory=threading.Condition)

    def read(self, server: RealServer, number: int) -> dict[str, object]:
        """Read a stream to its end; return its texts, its ends and its usage."""
        parts: dict[int, list[str]] = {}
        ends: dict[int, str] = {}
        usage = None
        with server.stream(f"def f{number}", max_tokens=NUM_TOKENS, **sampling(number)) as events:
            for event in self._counted(events, number):
                fields = parse(event)
                assert "error" not in fields, event
                usage = fields.get("usage") or usage
                for choice in fields.get("choices", ()):
                    parts.setdefault(choice["index"], []).append(choice["text"])
                    if choice["finish_reason"]:
                        ends[choice["index"]] = choice["finish_reason"]
        assert event == "[DONE]"
        assert usage is not None
        return {
            "texts": {index: "".join(text) for index, text in parts.items()},
            "ends": ends,
            "completion_tokens": usage["completion_tokens"],
        }

    def _counted(self, events: Iterator[str], number: int) -> Iterator[str]:
        try:
            for event in events:
                with self.news:
                    self.counts[number] += 1
                    self.news.notify()
                yield event
        finally:
            with self.news:
                self.ended.add(number)
                self.news.notify()

    def wait_for_more(self, num_events: int) -> bool:
        """Wait until each stream that has not ended got an event, and all together `num_events`; False = all have ended."""

        def came() -> bool:
            gains = self.counts - before
            waits = [n for n in range(NUM_STREAMS) if n not in self.ended and not gains[n]]
            return len(self.ended) == NUM_STREAMS or (not waits and gains.total() >= num_events)

        with self.news:
            before = self.counts.copy()
            assert self.news.wait_for(came, 60)
            return len(self.ended) < NUM_STREAMS


def test_streams_do_not_notice_that_engines_are_killed(tiny_model: Path, tmp_path: Path) -> None:
    random = Random(7)
    with real_server(tiny_model, tmp_path, command=WITHOUT_BACK_OFF) as server:
        with ThreadPoolExecutor(NUM_STREAMS) as pool:
            undisturbed = Streams()
            expected = list(pool.map(lambda number: undisturbed.read(server, number), range(NUM_STREAMS)))
        assert len({str(answer["texts"]) for answer in expected}) == NUM_STREAMS
        with ThreadPoolExecutor(NUM_STREAMS) as pool:
            streams = Streams()
            answers = [pool.submit(streams.read, server, number) for number in range(NUM_STREAMS)]
            for killed in range(NUM_KILLS):
                assert streams.wait_for_more(random.randint(1, 100)), f"all ended after {killed} kills"
                os.kill(wait_for_engine(server.process.pid), signal.SIGKILL)
            got = [answer.result() for answer in answers]
        assert got == expected
        metrics = server.metrics()
        assert metrics["headway_engine_restarts_total"] == NUM_KILLS
        assert not any(value for name, value in metrics.items() if "outcome=error" in name)
        assert eventually(server.is_idle)
        assert "Traceback" not in server.stderr
