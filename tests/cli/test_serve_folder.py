"""`headway serve` of a Hugging Face folder, in shards, and of the same model as a GGUF file: one answer."""

from pathlib import Path

import pytest

from support.checkpoints import case_named, write_checkpoint
from support.real_server import real_server

pytestmark = pytest.mark.native

PROMPT = "def hello(world):\n    return self\n" * 12
"""Some 250 tokens."""


def test_a_folder_and_a_gguf_file_of_one_model_answer_alike(tmp_path: Path) -> None:
    case = case_named("qwen3moe")  # bits are equal: nothing is reordered in its GGUF file
    answers = []
    for source in ("folder", "gguf"):
        place = tmp_path / source
        place.mkdir()
        with real_server(write_checkpoint(place, case, source), place) as server:
            done = server.complete(PROMPT, max_tokens=24, logprobs=0).json()
        assert done["usage"]["completion_tokens"] == 24
        answers.append(done["choices"])
    assert answers[0] == answers[1]
