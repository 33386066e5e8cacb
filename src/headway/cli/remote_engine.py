"""Makes the client of a remote engine, with the gate in front of it. `service` imports it only where one is asked for."""

import logging
from typing import Final

from headway.core.clock import Clock
from headway.core.config import SchedulerConfig
from headway.core.events import Hook
from headway.engine.remote import RemoteEngineClient
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.flow.gradient import Gradient
from headway.flow.remote import RemoteGate
from headway.flow.remote_turns import RemoteTurns
from headway.models.tokenizer import Tokenizer

SAMPLE: Final = (
    "def mean(values: list[float]) -> float:\n    return sum(values) / 12345.678  # naïve, größer, 数据, данные\n"
    "The quick brown fox; isn't it \"unbelievable\"?\n\n\t{'key': [1, 22, 333]}\n"
)
"""Words, code, white space, digits and several scripts: tokenizers that agree on its length are nearly always the same."""


def open_remote_engine(
    config: RemoteConfig, scheduler: SchedulerConfig, tokenizer: Tokenizer, clock: Clock, hook: Hook
) -> RemoteEngineClient:
    """Return the client, not yet started. Of `scheduler` the shares and the limits of the queue count."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line for each request, and one each poll
    num = config.max_concurrent
    gate = RemoteGate(
        clock,
        shares=scheduler.class_shares,
        lend_high=scheduler.lend_high,
        gradient=Gradient() if num is None else Gradient(limit=num, min_limit=num, max_limit=num),
        max_waiting=scheduler.max_queued_requests,
    )
    return RemoteEngineClient(
        config,
        RemoteText(vocab_size=tokenizer.vocab_size, sample=(SAMPLE, tuple(tokenizer.encode(SAMPLE)))),
        clock,
        RemoteTurns(gate, max_waiting_tokens=scheduler.max_queued_tokens),
        hook,
    )
