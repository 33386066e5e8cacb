"""What left the native KV cache comes back bit by bit, and answers go on as if it had never left."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.core.config import EngineConfig, KvFormat, SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.models.architectures import open_plan
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from support.engine_on_fake import Received, make_request, step_checked
from support.kv_jobs import ManualJobs
from support.kv_tiers import make_tiers
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native

NUM_BLOCKS = 20
SAMPLED = SamplingParams(temperature=0.9, seed=7)


@dataclass
class Served:
    """One answer, and the blocks it was computed from."""

    tokens: list[int]
    blocks: list[bytes]
    cached_tokens: int


def serve(engine: Engine, runner: NativeRunner, jobs: ManualJobs, request: Request) -> Served:
    engine.handle(Submit(request))
    got, blocks = Received(), []
    while engine.has_work:
        if step_checked(engine, got) is None:
            assert jobs.run(), "the engine waits for nothing"
        if got.of(request.request_id) and request.request_id not in got.finished:
            table = engine.block_table(request.request_id)
            blocks = [runner.read_block(block) for block in table[: len(request.token_ids) // 16]]
    jobs.run()
    finished = got.finished[request.request_id]
    return Served(got.of(request.request_id), blocks, finished.usage.cached_tokens)


def ids(length: int, start: int, vocab_size: int) -> list[int]:
    return [(start * 31 + index * 17) % vocab_size for index in range(length)]


@pytest.mark.parametrize("tier", ["host", "disk"])
@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_blocks_come_back_bit_by_bit(tmp_path: Path, kv: KvFormat, tier: str) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tied=False).path
    config = EngineConfig(
        model="tiny",
        model_path=str(path),
        kv=kv,
        max_context=512,
        threads=1,
        scheduler=SchedulerConfig(max_num_seqs=4),
    )
    runner = load_runner(open_plan(path), config)
    jobs = ManualJobs()
    tiers, files = make_tiers(
        jobs,
        host_bytes=1 << 30 if tier == "host" else 0,
        folder=tmp_path / "kv" if tier == "disk" else None,
        disk_bytes=1 << 30,
    )
    info = msgspec.structs.replace(engine_info("tiny", runner), num_blocks=NUM_BLOCKS)
    limits = SchedulerConfig(max_draft_tokens=0, itl_target_s=None, policy="fcfs")
    vocab_size = runner.info.vocab_size
    # No clock: prompts are never known to be quick, so whatever is kept comes back.
    engine = Engine(runner, limits, ManualClock(), info, tiers=tiers)
    first = serve(engine, runner, jobs, make_request("first", ids(250, 1, vocab_size), 12, SAMPLED))
    serve(engine, runner, jobs, make_request("other", ids(290, 2, vocab_size), 12, SAMPLED))
    again = serve(engine, runner, jobs, make_request("again", ids(250, 1, vocab_size), 12, SAMPLED))
    stats = engine.statistics()
    assert (stats.host_restored_blocks_total if tier == "host" else stats.disk_restored_blocks_total) >= 13
    assert again.cached_tokens == 240
    assert len(first.blocks) == 15
    assert again.blocks == first.blocks
    assert again.tokens == first.tokens
    assert len(set(first.tokens)) > 3, "the model says nothing worth comparing"
    if files is not None:
        files.close()
