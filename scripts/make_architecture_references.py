"""Write tests/data/architectures: the logits of the tiny random models in `transformers` and float32.

Every case of tests/support/checkpoint_cases.py is written as a Hugging Face folder, loaded by `transformers` with the
plain (eager) attention, and run over one seeded sequence of tokens. Where a case is a GGUF file too, the weights are
what the `gguf` package reads from it. Kept are the logits at the case's positions, as CASE.npy, and in manifest.json the
versions, the tokens, a sum of the weights, config.json as `transformers` itself writes it, and what each ablation
changes: a feature that is switched off or made a little wrong has to move the logits by far more than the test
tolerates, or the script fails.

In an environment of its own (made with these versions):

    python -m venv venv-reference
    venv-reference/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    PYTHONPATH=src:tests venv-reference/bin/python scripts/make_architecture_references.py [CASE...]

Takes a minute on two cores.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.checkpoint_case import Ablation, Case, Config
from support.checkpoint_cases import CASES
from support.checkpoint_folder import write_folder
from support.checkpoint_gguf import folder_weights, write_checkpoint_gguf
from support.checkpoint_weights import F32Array, checksum, make_tokens, make_weights

DATA = Path(__file__).parents[1] / "tests" / "data" / "architectures"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cases", nargs="*", help="names of cases; the others keep what is stored")
    names: list[str] = parser.parse_args(arguments).cases

    import torch  # type: ignore[import-not-found]
    import transformers  # type: ignore[import-not-found]

    torch.manual_seed(0)
    path = DATA / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cases": {}}
    manifest["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    DATA.mkdir(exist_ok=True)
    weak: list[str] = []
    for case in CASES:
        if not names or case.name in names:
            entry = manifest["cases"][case.name] = reference(case)
            weak += weak_ablations(case, entry["ablations"])
    known = {case.name for case in CASES}
    manifest["cases"] = {name: entry for name, entry in sorted(manifest["cases"].items()) if name in known}
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in manifest["cases"].items()
    )
    path.write_text(f'{{"versions": {json.dumps(manifest["versions"])},\n"cases": {{\n{lines}\n}}}}\n')
    if weak:
        raise SystemExit("These change too little to prove anything: " + "; ".join(weak))


def reference(case: Case) -> Mapping[str, Any]:
    """Store the logits of `case` and return its entry of the manifest."""
    weights, tokens = make_weights(case), make_tokens(case)
    drawn = checksum(weights)
    if "gguf" in case.sources:
        weights = weights_of_gguf(case, weights)
    logits, margin = run(case, case.config, weights, tokens)
    np.save(DATA / f"{case.name}.npy", logits)
    ablations: dict[str, float] = {}
    for ablation in case.ablations:
        changed, _ = run(case, {**case.config, **ablation.config}, filled(weights, ablation), tokens)
        ablations[ablation.name] = round(relative_error(changed, logits), 3)
    top = np.sort(logits, axis=1)[:, ::-1]
    print(
        f"{case.name}: logits {logits.std():.2f}, top less second {np.median(top[:, 0] - top[:, 1]):.2f},"
        f" {len(set(logits.argmax(axis=1)))} different tokens, router {margin}; {ablations}"
    )
    return {
        "weights": drawn,
        "tokens": tokens,
        "positions": case.positions,
        "ablations": ablations,
        "saved_config": config_as_saved(case, weights) if "folder" in case.sources else None,
    }


def weak_ablations(case: Case, ablations: Mapping[str, float]) -> list[str]:
    """Return what the case is for and does not prove."""
    return [f"{case.name}: {each.name}" for each in case.ablations if ablations[each.name] < each.least]


def weights_of_gguf(case: Case, weights: Mapping[str, F32Array]) -> dict[str, F32Array]:
    """Return what the `gguf` package reads from the case's GGUF file. Exits if that is not what was stored."""
    from gguf import GGUFReader  # type: ignore[import-not-found]
    from gguf.quants import dequantize  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        path = write_checkpoint_gguf(Path(folder) / "model.gguf", case, weights)
        tensors = {each.name: dequantize(each.data, each.tensor_type) for each in GGUFReader(path).tensors}
    read = folder_weights(case.config, weights, tensors)
    for name, values in weights.items():
        error = relative_error(read[name], values)
        if error > (0.1 if case.types else 1e-6):  # IQ4_NL and Q4_K are off by 6 to 8 %
            raise SystemExit(f"{case.name}: {name} is off by {error:.3f}")
    return read


def filled(weights: Mapping[str, F32Array], ablation: Ablation) -> Mapping[str, F32Array]:
    """Return the weights with those of the ablation replaced by its constants."""

    def replaced(name: str, values: F32Array) -> F32Array:
        constants = [value for ending, value in ablation.fill.items() if name.endswith(ending)]
        return np.full_like(values, constants[0]) if constants else values

    return {name: replaced(name, values) for name, values in weights.items()}


def run(
    case: Case, config: Config, weights: Mapping[str, F32Array], tokens: Sequence[int]
) -> tuple[F32Array, float | None]:
    """Return the logits at the case's positions, and how close the router's choice was there, in logits."""
    import torch

    model = load(case, config, weights)
    experts = "num_experts" in config
    with torch.inference_mode():
        output = model(torch.tensor([tokens]), **({"output_router_logits": True} if experts else {}))
    margin = None
    if experts:
        chosen = config["num_experts_per_tok"]
        routed = torch.stack([layer[case.positions] for layer in output.router_logits])
        ranked = routed.sort(descending=True).values
        margin = round(float((ranked[..., chosen - 1] - ranked[..., chosen]).min()), 3)
    logits: F32Array = output.logits[0, case.positions].numpy()
    return logits, margin


def load(case: Case, config: Config, weights: Mapping[str, F32Array]) -> Any:
    """Return the model in float32. Exits if `transformers` does not take every tensor."""
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(Path(folder) / "model", case, weights, config=config)
        model, info = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        left = {key for key in info[problem] if key != "lm_head.weight"}
        if left:
            raise SystemExit(f"{case.name}: {problem} {sorted(left)}")
    return model.eval()


def config_as_saved(case: Case, weights: Mapping[str, F32Array]) -> Mapping[str, Any]:
    """Return the config.json that `transformers` itself writes for the case."""
    with tempfile.TemporaryDirectory() as folder:
        load(case, case.config, weights).save_pretrained(folder)
        saved: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
    return saved


def relative_error(values: F32Array, expected: F32Array) -> float:
    """Return the norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    main()
