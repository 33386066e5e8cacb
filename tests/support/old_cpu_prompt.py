"""Answers one prompt in this process and prints what came out; run on an emulated CPU by tests/test_old_cpu.py.

python old_cpu_prompt.py MODEL.gguf ISA PROMPT
"""

import json
import sys
from pathlib import Path
from typing import cast

from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig, InstructionSet
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.build import build_engine
from headway.models.text_side import open_text


def main(path: str, isa: str, prompt: str) -> None:
    """Generate eight tokens greedily."""
    config = EngineConfig(
        model="tiny", model_path=path, isa=cast(InstructionSet, isa), threads=2, kv_bytes=1 << 20
    )
    engine = build_engine(config, MonotonicClock())
    tokenizer = open_text(Path(path)).tokenizer
    request = Request(
        request_id="one",
        token_ids=tuple(tokenizer.encode(prompt)),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=8,
    )
    engine.handle(Submit(request))
    tokens: list[int] = []
    while engine.has_work:
        outputs = engine.step()
        assert outputs is not None
        tokens += [token for delta in outputs.deltas for token in delta.token_ids]
    answer = {
        "tokens": tokens,
        "text": tokenizer.decode(tokens),
        "fingerprint": engine.info.system_fingerprint,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
