"""The part of llama.cpp's C interface that measuring needs, by ctypes.

Its structures change between versions and libraries do not tell theirs, so `load` compares the defaults that the library
returns with those of the pinned version: a field that moved shows there. The layout is that of llama.h in 11434.
"""

import ctypes
from ctypes import CDLL, POINTER, Structure, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint32, c_void_p
from pathlib import Path
from typing import Any

KV_TYPES = {"f16": 1, "q8_0": 8, "bf16": 30}
"""ggml_type of a KV cache."""


class ModelParams(Structure):
    """llama_model_params."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParams(Structure):
    """llama_context_params."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", ctypes.c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_version": (c_char_p, ()),
    "llama_print_system_info": (c_char_p, ()),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_free": (None, (c_void_p,)),
    "llama_n_ctx": (c_uint32, (c_void_p,)),
    "llama_n_batch": (c_uint32, (c_void_p,)),
    "llama_n_ubatch": (c_uint32, (c_void_p,)),
    "llama_n_threads": (c_int32, (c_void_p,)),
    "llama_n_threads_batch": (c_int32, (c_void_p,)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_synchronize": (None, (c_void_p,)),
}


def load(folder: Path) -> Any:
    """Return the library of the package's folder; raises RuntimeError if its structures are not those above."""
    library = CDLL(str(folder / "libllama.so"))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    library.llama_backend_init()
    check_layout(library.llama_model_default_params(), library.llama_context_default_params())
    return library


def check_layout(model: ModelParams, context: ContextParams) -> None:
    """Raise RuntimeError unless the defaults are the pinned version's."""
    found = {
        "model": (model.vocab_only, model.check_tensors, model.use_extra_bufts, model.no_alloc),
        "sizes": (context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max, context.n_threads),
        "floats": (context.yarn_beta_fast, context.yarn_beta_slow),
        "kv": (context.type_k, context.type_v),
        "flags": (context.embeddings, context.offload_kqv, context.no_perf, context.n_samplers),
    }
    expected = {
        "model": (False, False, True, False),
        "sizes": (512, 2048, 512, 1, 4),
        "floats": (-1.0, -1.0),
        "kv": (KV_TYPES["f16"], KV_TYPES["f16"]),
        "flags": (False, True, True, 0),
    }
    if found != expected:
        raise RuntimeError(f"llama.cpp's structures have changed: {found}, expected {expected}")
