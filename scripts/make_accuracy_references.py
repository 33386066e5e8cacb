"""Write tests/data/smollm2/accuracy.json: what the demo model computes in float32, for tests that need no torch.

The reference is `transformers` in float32 on the dequantised weights of the demo model's GGUF file; that the weights are
those of the `gguf` package's own dequantisation is checked first. Two sets of values:

source    2,000 tokens of Python (tests/data/smollm2/python_source.txt) and the negative log-likelihood of each but the first
greedy    20 prompts with the model's greedy continuation of 32 tokens, and at each step the largest logits, best first

In an environment of its own (made with these versions):

    python -m venv venv-reference
    venv-reference/bin/pip install torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 gguf==0.19.0 numpy==2.4.6
    PYTHONPATH=src venv-reference/bin/python scripts/make_accuracy_references.py MODEL.gguf

`headway pull smollm2` fetches the model's file and prints its path. Takes a few minutes on two cores.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.models.gguf import read_gguf
from headway.models.gguf_tokenizer import read_gguf_tokenizer
from headway.models.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "tests" / "data" / "smollm2"
NUM_SOURCE_TOKENS = 2_000
NUM_GREEDY_TOKENS = 32
NUM_TOP = 8
"""Largest logits stored per step: enough to see how far another engine's are off where it matters."""

_SYSTEM = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)


def chat(question: str) -> str:
    """Return the demo model's prompt for one question."""
    return f"{_SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    "def fibonacci(n: int) -> int:\n",
    "import os\nimport sys\n\n\ndef main() -> None:\n    ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "# Sort a list of dictionaries by the key 'age'\npeople = sorted(",
    "for i in range(10):\n    if i % 2 == 0:\n        ",
    "SELECT name, COUNT(*) FROM orders",
    "#include <stdio.h>\n\nint main(void) {\n",
    "function debounce(callback, delay) {\n",
    '{"name": "Ada", "age": 36, "languages": [',
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "Water boils at a temperature of",
    "1, 2, 3, 4, 5,",
    "Dear Sir or Madam,\n\n",
    "La tour Eiffel est",
    chat("Write a Python function that reverses a string."),
    chat("What is the difference between a list and a tuple in Python?"),
    chat("Explain what a hash table is in one sentence."),
    chat("Fix this code: `for i in range(10) print(i)`"),
    chat("Who wrote Romeo and Juliet?"),
]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=Path, help="the demo model's GGUF file")
    path: Path = parser.parse_args(arguments).model

    import torch  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM  # type: ignore[import-not-found]

    # Ours, because it has llama.cpp's ids; what transformers makes of a GGUF file splits white space before digits.
    tokenizer = Tokenizer(read_gguf_tokenizer(read_gguf(path).metadata))
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    check_weights(model, path)

    with torch.inference_mode():
        ids = tokenizer.encode((DATA / "python_source.txt").read_text())[:NUM_SOURCE_TOKENS]
        assert len(ids) == NUM_SOURCE_TOKENS, f"the source has only {len(ids)} tokens"
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
        nll = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        greedy = [continuation(model, tokenizer.encode(text)) for text in PROMPTS]
    write({"tokens": ids, "nll": [round(float(value), 5) for value in nll]}, greedy)
    print(f"mean NLL {float(nll.mean()):.6f} over {len(nll)} tokens")


def check_weights(model: Any, path: Path) -> None:
    """Raise unless every weight of `model` is what the `gguf` package dequantises from the file."""
    import numpy as np
    from gguf import GGUFReader  # type: ignore[import-not-found]
    from gguf.quants import dequantize  # type: ignore[import-not-found]

    names = {
        "token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    state = model.state_dict()
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    tensors = GGUFReader(path).tensors
    for tensor in tensors:
        *block, name, _ = tensor.name.split(".")
        key = f"model.layers.{block[1]}.{names[name]}.weight" if block else f"{names[name]}.weight"
        expected = dequantize(tensor.data, tensor.tensor_type)
        if name in heads:  # GGUF stores rotary pairs side by side, transformers half a head apart
            rows, columns = expected.shape
            pairs = expected.reshape(heads[name], rows // heads[name] // 2, 2, columns)
            expected = pairs.swapaxes(1, 2).reshape(rows, columns)
        if not np.array_equal(state[key].numpy(), expected):
            raise SystemExit(f"{tensor.name} differs from gguf.quants.dequantize")
    print(f"{len(tensors)} tensors equal gguf.quants.dequantize")


def continuation(model: Any, prompt: list[int]) -> Mapping[str, object]:
    """Return the greedy continuation of `prompt` and, in one pass over the whole, the largest logits at each step."""
    import torch

    tokens = list(prompt)
    past = None
    step = torch.tensor([tokens])
    for _ in range(NUM_GREEDY_TOKENS):
        output = model(step, past_key_values=past, use_cache=True)
        past = output.past_key_values
        tokens.append(int(output.logits[0, -1].argmax()))
        step = torch.tensor([tokens[-1:]])
    rows = model(torch.tensor([tokens[:-1]])).logits[0, len(prompt) - 1 :]
    top = rows.topk(NUM_TOP)
    continued = tokens[len(prompt) :]
    if top.indices[:, 0].tolist() != continued:
        raise SystemExit("one pass and token by token disagree; choose another prompt")
    return {
        "prompt": prompt,
        "continuation": continued,
        "top_ids": top.indices.tolist(),
        "top_logits": [[round(value, 4) for value in row] for row in top.values.tolist()],
    }


def write(source: Mapping[str, object], greedy: Sequence[Mapping[str, object]]) -> None:
    cases = ",\n".join(json.dumps(case) for case in greedy)
    (DATA / "accuracy.json").write_text(f'{{"source": {json.dumps(source)},\n"greedy": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
