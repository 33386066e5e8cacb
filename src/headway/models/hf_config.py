"""The config.json of a Hugging Face folder, read with bounds; errors name file and key.

It knows which keys never change what is computed; which are understood is the caller's to say, and all others are
refused by name. Nothing in it is executed: `auto_map` is ignored. Meaning of the keys: `transformers`,
configuration_utils.py.
"""

import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from headway.core.errors import ModelFileError
from headway.models.limits import MAX_INT32
from headway.models.quote import quoted
from headway.models.strict_json import read_json_file

MAX_CONFIG_BYTES: Final = (
    1024 * 1024
)  # published ones are below 10 kB; with a label for every class some have 100 kB

# Training, generation, loading, and what other programs leave behind.
HARMLESS: Final = frozenset(
    {
        "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures",
        "attention_dropout", "attn_implementation", "auto_map", "bad_words_ids", "begin_suppress_tokens",
        "bos_token_id", "boi_token_index", "cache_implementation", "chunk_size_feed_forward", "diversity_penalty",
        "do_sample", "dtype", "early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size", "eoi_token_index",
        "eos_token_id", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
        "forced_eos_token_id", "hidden_dropout", "id2label", "image_token_index", "initializer_range", "is_decoder",
        "is_llama_config", "keys_to_ignore_at_inference", "label2id", "length_penalty", "max_length", "min_length",
        "mm_tokens_per_image", "model_name", "model_type", "name_or_path", "no_repeat_ngram_size", "num_beam_groups",
        "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states", "output_router_logits",
        "output_scores", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "remove_invalid_values",
        "repetition_penalty", "resid_pdrop", "return_dict", "return_dict_in_generate", "router_aux_loss_coef",
        "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class",
        "top_k", "top_p", "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "typical_p",
        "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
        # Dropout, which training alone has, lengths of other programs, and tokens beside the text.
        "attention_probs_dropout_prob", "hidden_dropout_prob", "max_sequence_length", "model_max_length", "seq_length",
        "boi_token_id", "eoi_token_id", "image_token_id",
    }
)  # fmt: skip

_ADAPTER: Final = "adapter_config.json"  # what the package peft writes

# What we do not compute, with the values that switch it off; null always does.
OFF_VALUES: Final[Mapping[str, Sequence[object]]] = {
    "activation": ("swiglu",),  # Falcon3's second name of what hidden_act says
    "add_cross_attention": (False,),
    "attention_bias": (False,),
    "attn_logit_softcapping": (),
    "compression_config": (),
    "cross_attention_hidden_size": (),
    "decoder_start_token_id": (),
    "embedding_multiplier": (1,),
    "final_logit_softcapping": (),
    "full_attn_mod": (1,),
    "interpolate_factor": (1,),
    "is_causal": (True,),
    "is_encoder_decoder": (False,),
    "layer_types": (),
    "lm_head_bias": (False,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "max_window_layers": (),
    "mlp_bias": (False,),
    "num_experts": (0,),
    "num_experts_per_tok": (0,),
    "num_local_experts": (0,),
    "original_max_position_embeddings": (),
    "partial_rotary_factor": (1,),
    "pruned_heads": ({},),
    "qkv_bias": (False,),
    "quantization_config": (),
    "residual_multiplier": (1,),
    "rope_interleaved": (False,),
    "rope_local_base_freq": (),
    "shared_expert_intermediate_size": (0,),
    "sliding_window": (),
    "sliding_window_pattern": (2,),  # what gemma2 has anyway
    "tie_encoder_decoder": (False,),
    "use_bidirectional_attention": (False,),
    "use_mrope": (False,),
    "use_sliding_window": (False,),
}


class HfConfig:
    """Typed access to one object of config.json; null means "not given", as in `transformers`, unless said otherwise.

    `where` is the file's path, `path` what leads to the object ("text_config."), `defaults` what a missing key means.
    """

    def __init__(
        self,
        where: str,
        values: Mapping[str, object],
        *,
        path: str = "",
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self.where = where
        self.values = values
        self.path = path
        self.defaults = defaults or {}

    def __contains__(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def get(self, key: str) -> object:
        """Return the value of any type, or the default; an explicit null stays None whatever the default is."""
        return self.values[key] if key in self.values else self.defaults.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return the integer; a missing one without default is refused."""
        value = self._given(key, default)
        if type(value) is not int:  # a bool is no integer here
            self.fail(f"{self.path}{key} is {quoted(value)}, not an integer")
        return value

    def size(self, key: str, default: int | None = None, *, maximum: int = MAX_INT32) -> int:
        """Return the integer from 1 to `maximum`."""
        value = self.integer(key, default)
        if not 1 <= value <= maximum:
            self.fail(f"{self.path}{key} is {quoted(value)}, out of range")
        return value

    def number(
        self, key: str, default: float | None = None, *, above: float = 0.0, maximum: float = math.inf
    ) -> float:
        """Return the number above `above`, at most `maximum` and finite."""
        value = self._given(key, default)
        if type(value) not in (int, float):
            self.fail(f"{self.path}{key} is {quoted(value)}, not a number")
        assert isinstance(value, int | float)
        if not above < value <= maximum or abs(value) > sys.float_info.max:  # integers of JSON have no end
            self.fail(f"{self.path}{key} is {quoted(value)}, out of range")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return the bool; a missing one without default is refused."""
        value = self._given(key, default)
        if not isinstance(value, bool):
            self.fail(f"{self.path}{key} is {quoted(value)}, neither true nor false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return the string; a missing one without default is refused."""
        value = self._given(key, default)
        if not isinstance(value, str):
            self.fail(f"{self.path}{key} is {quoted(value)}, not a string")
        return value

    def numbers(self, key: str, length: int, *, above: float, maximum: float) -> tuple[float, ...]:
        """Return the list of `length` numbers, each above `above` and at most `maximum`."""
        value = self._given(key, None)
        if not isinstance(value, list) or len(value) != length:
            self.fail(f"{self.path}{key} is not a list of {length} numbers")
        if not all(type(item) in (int, float) and above < item <= maximum for item in value):
            self.fail(f"{self.path}{key} holds something else than numbers above {above} up to {maximum}")
        return tuple(float(item) for item in value)

    def inner(self, key: str) -> "HfConfig":
        """Return the object at `key`; a missing one is empty."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            self.fail(f"{self.path}{key} is {quoted(value)}, not an object")
        return HfConfig(self.where, value or {}, path=f"{self.path}{key}.")

    def refuse_unsupported(
        self, understood: Collection[str], off_values: Mapping[str, Sequence[object]] = OFF_VALUES
    ) -> None:
        """Refuse every key that is neither understood nor harmless nor has a value that switches it off."""
        for key, value in self.values.items():
            if value is None or key in understood or key in HARMLESS:
                continue
            name = quoted(self.path + key)
            if key not in off_values:
                self.fail(f"the key {name} is not supported, it may change the output")
            if value not in off_values[key]:
                off = " or ".join(["null", *map(str, off_values[key])])
                self.fail(f"{self.path}{key} is {quoted(value)}, which is not supported (only {off} is)")

    def fail(self, reason: str) -> NoReturn:
        """Raise ModelFileError: the file's path and the reason."""
        raise ModelFileError(f"{self.where}: {reason}.")

    def _given(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            self.fail(f"{self.path}{key} is missing")
        return value


def read_config(folder: Path) -> HfConfig:
    """Return the config.json of a model's folder.

    Raises ModelFileError, one sentence, if there is no valid one; of a folder without one it says what else to name.
    """
    name = "config.json"
    if not os.path.lexists(folder / name):
        advice = ""
        if file := min(folder.glob("*.gguf"), default=None):
            advice = f"; name a file in it, such as {file}"
        elif os.path.lexists(folder / _ADAPTER):
            advice = f"; adapters ({_ADAPTER}) are not supported: merge this one into its model"
        raise ModelFileError(f"{folder}: has no {name}, so it is no model's folder{advice}.")
    return HfConfig(str(folder / name), read_json_file(folder, name, max_bytes=MAX_CONFIG_BYTES))
