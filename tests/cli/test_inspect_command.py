"""`headway inspect` in this process: what it tells, what it refuses, and that it fetches nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.inspect_report import PROCESS_BYTES, as_json, as_text
from headway.cli.inspection import inspect_model
from headway.cli.main import main
from headway.core.plan import LayerShape, LongContext
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return path


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["inspect", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["inspect", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    return err


def test_it_tells_what_is_in_a_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspected(capsys, str(model)).splitlines()
    lines = {line[:14].strip(): line[14:] for line in text if line[:1].strip()}
    assert lines["model"] == "tiny"
    assert lines["architecture"] == "llama, 0.1 million parameters"
    assert lines["shape"] == "2 layers of 64, 4 heads and 2 KV heads of 16, feed-forward 128"
    assert lines["context"] == "512 tokens"
    assert lines["tokenizer"] == "gpt2, smollm, 320 tokens"
    assert lines["text"] == "chat template, no fill-in-the-middle, no embeddings"
    assert lines["tensors"].split()[:2] == ["F32", "20"]
    assert lines["KV cache"] == "bf16 0.3 MB for 1,000 tokens, 0.1 MB for 512"


def test_its_json_says_the_same(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = json.loads(inspected(capsys, str(model), "--json"))
    assert (told["architecture"], told["context"], told["runs"], told["problems"]) == ("llama", 512, True, [])
    assert told["shape"]["num_layers"] == 2
    assert told["tensors"] == [{"type": "F32", "num_tensors": 20, "num_bytes": told["num_parameters"] * 4}]
    assert told["tokenizer"] == {"kind": "gpt2, smollm", "vocab_size": 320}
    memory = told["memory"]
    assert memory["kv_bytes_per_1000_tokens"]["bf16"] == 1000 * 2 * 2 * 2 * 16 * 2
    assert memory["kv_bytes_full_context"]["bf16"] == 512 * 2 * 2 * 2 * 16 * 2
    assert memory["fits"] == dict.fromkeys(("auto", "bf16", "int8", "int4", "nf4"), True)
    assert set(memory["weights_bytes"]) == {"auto", "bf16", "int8", "int4", "nf4"}


def test_a_model_that_we_do_not_run_is_told_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path, extra_metadata={"general.architecture": "mamba", "mamba.context_length": 99})
    text = inspected(capsys, str(path))
    assert "architecture  mamba, 0.1 million parameters" in text
    assert "context       99 tokens" in text
    assert "Headway cannot run it." in text
    assert "'mamba' is not supported" in text.splitlines()[-1]
    told = json.loads(inspected(capsys, str(path), "--json"))
    assert (told["runs"], told["shape"], told["memory"], len(told["problems"])) == (False, None, None, 1)


def test_what_is_no_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "garbage.gguf").write_bytes(bytes(range(256)))
    (tmp_path / "empty").mkdir()
    assert "not a GGUF file" in refused(capsys, str(tmp_path / "garbage.gguf"))
    assert "No such file" in refused(capsys, str(tmp_path / "missing.gguf"))
    assert "config.json" in refused(capsys, str(tmp_path / "empty"))
    assert "not a regular file" in refused(capsys, "/dev/null")
    assert "File name too long" in refused(capsys, f"./{'a' * 300}.gguf")


def test_what_is_not_here_is_not_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("smollm2", "owner/name", "owner/name:Q4_0"):
        assert f"fetch it with `headway pull {name}`" in refused(capsys, name)
    assert "Unknown model 'nope'" in refused(capsys, "nope")
    assert list(tmp_path.iterdir()) == []


def test_the_verdict_follows_the_memory(model: Path) -> None:
    inspection = inspect_model(model, group_size=32, available_bytes=0)
    needs = inspection.needs
    assert needs is not None
    weights, token = needs.weight_bytes["auto"] + PROCESS_BYTES, needs.kv_token_bytes["bf16"]
    for available_bytes, verdict in (
        (weights - 1, "its weights exceed the memory available here"),
        (
            weights + 100 * token,
            "100 tokens of context fit here if asked for (--max-context), 25 tokens otherwise",
        ),
        (weights + 512 * token - 1, "511 tokens of context fit here if asked for"),
        (
            weights + 512 * token,
            "a full context fits here if asked for (--max-context), 128 tokens otherwise",
        ),
        (weights + 2048 * token, "it fits with a full context"),
    ):
        here = replace(inspection, available_bytes=available_bytes)
        assert verdict in as_text(here).splitlines()[-1]
        told: dict[str, Any] = as_json(here)
        assert told["memory"]["fits"]["auto"] == (available_bytes >= weights)
        assert told["memory"]["fits_full_context"]["auto"]["bf16"] == (
            available_bytes >= weights + 512 * token
        )


def test_windows_experts_and_long_contexts_are_told(model: Path) -> None:
    inspection = inspect_model(model, group_size=32, available_bytes=10**9)
    assert inspection.shape is not None
    shape = replace(
        inspection.shape,
        layers=(LayerShape(window=128), LayerShape(window=inspection.shape.max_context)),
        long_context=LongContext(original_context=256, ropes=inspection.shape.ropes),
        num_experts=8,
        num_experts_per_token=2,
    )
    text = as_text(replace(inspection, shape=shape))
    assert "window        1 of 2 layers see 128 tokens" in text
    assert text.count("layers see") == 1
    assert "feed-forward 128 x 8 experts, 2 a token" in text
    assert "256 unless more is asked for" in text
