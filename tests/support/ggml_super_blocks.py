"""Numpy encoders and decoders of ggml's K types, blocks of 256 elements, for tests. `ggml_blocks` is the entrance.

Layouts as in ggml's block structures (ggml-common.h). The encoders search for nothing: each group's scale follows from its
extremes, which is enough for weights that tests make up.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

SUPER_BLOCK = 256

F32Array = npt.NDArray[np.float32]
Codes = npt.NDArray[np.integer[Any]]

_Q4_K = np.dtype([("d", "<f2"), ("m", "<f2"), ("scales", "u1", 12), ("low", "u1", 128)])
_Q5_K = np.dtype([("d", "<f2"), ("m", "<f2"), ("scales", "u1", 12), ("fifth", "u1", 32), ("low", "u1", 128)])
_Q6_K = np.dtype([("low", "u1", 128), ("pairs", "u1", 64), ("scales", "i1", 16), ("d", "<f2")])


def encode_q4_k(values: F32Array) -> bytes:
    """Return the Q4_K blocks of `values` (num_blocks, 256)."""
    blocks, codes = _affine(values, _Q4_K, 15)
    blocks["low"] = _pack_nibbles(codes)
    return blocks.tobytes()


def encode_q5_k(values: F32Array) -> bytes:
    """Return the Q5_K blocks of `values` (num_blocks, 256)."""
    blocks, codes = _affine(values, _Q5_K, 31)
    blocks["low"] = _pack_nibbles(codes & 15)
    # Bit g of byte j belongs to element j of group g.
    blocks["fifth"] = np.packbits(codes >> 4, axis=1, bitorder="little")[:, 0]
    return blocks.tobytes()


def encode_q6_k(values: F32Array) -> bytes:
    """Return the Q6_K blocks of `values` (num_blocks, 256): signed codes of 6 bits, a scale per 16 elements."""
    groups = values.reshape(-1, 16, 16)
    scales = np.abs(groups).max(axis=2) / 31
    blocks = np.zeros(len(groups), _Q6_K)
    blocks["d"] = scales.max(axis=1) / 127
    d = blocks["d"].astype(np.float32)[:, None]
    blocks["scales"] = np.rint(_ratio(scales, d))
    steps = (d * blocks["scales"])[:, :, None]
    codes = (np.rint(_ratio(groups, steps)).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (
        codes & 15
    )  # (block, half, quarter, element): quarters 0 and 1 are low nibbles, 2 and 3 the high ones
    blocks["low"] = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(-1, 128)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    blocks["pairs"] = np.bitwise_or.reduce(codes >> 4 << shifts, axis=2).reshape(-1, 64)
    return blocks.tobytes()


def decode_q4_k(data: bytes) -> F32Array:
    """Return the values of Q4_K blocks, (num_blocks, 256)."""
    blocks = np.frombuffer(data, _Q4_K)
    return _scaled(blocks, _unpack_nibbles(blocks["low"]))


def decode_q5_k(data: bytes) -> F32Array:
    """Return the values of Q5_K blocks, (num_blocks, 256)."""
    blocks = np.frombuffer(data, _Q5_K)
    fifth = np.unpackbits(blocks["fifth"][:, None, :], axis=1, count=8, bitorder="little")
    return _scaled(blocks, _unpack_nibbles(blocks["low"]) | fifth << 4)


def decode_q6_k(data: bytes) -> F32Array:
    """Return the values of Q6_K blocks, (num_blocks, 256)."""
    blocks = np.frombuffer(data, _Q6_K)
    low = blocks["low"].reshape(-1, 2, 2, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2)  # (block, half, quarter, element)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    upper = blocks["pairs"].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = (nibbles | upper << 4).astype(np.float32) - 32
    steps = blocks["d"].astype(np.float32)[:, None] * blocks["scales"].astype(np.float32)
    values: F32Array = steps[:, :, None] * codes.reshape(-1, 16, 16)
    return values.reshape(-1, SUPER_BLOCK)


def _affine(values: F32Array, layout: np.dtype[Any], highest: int) -> tuple[npt.NDArray[Any], Codes]:
    """Return blocks with scales filled in, and the codes (num_blocks, 8, 32): scale * code - minimum."""
    groups = values.reshape(-1, 8, 32)
    minima = np.maximum(-groups.min(axis=2), 0)
    scales = np.maximum(groups.max(axis=2) + minima, 0) / highest
    blocks = np.zeros(len(groups), layout)
    blocks["d"] = scales.max(axis=1) / 63
    blocks["m"] = minima.max(axis=1) / 63
    d, m = (blocks[name].astype(np.float32)[:, None] for name in "dm")
    scale_codes = np.rint(_ratio(scales, d)).clip(0, 63).astype(np.uint8)
    minimum_codes = np.rint(_ratio(minima, m)).clip(0, 63).astype(np.uint8)
    blocks["scales"] = _pack_scales(scale_codes, minimum_codes)
    shifted = groups + (m * minimum_codes)[:, :, None]
    return blocks, np.rint(_ratio(shifted, (d * scale_codes)[:, :, None])).clip(0, highest).astype(np.uint8)


def _pack_scales(scales: Codes, minima: Codes) -> Codes:
    """Pack eight scales and eight minima of 6 bits; the last four of each lend their upper bits to the first four."""
    upper = [codes[:, :4] | codes[:, 4:] >> 4 << 6 for codes in (scales, minima)]
    return np.concatenate([*upper, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4], axis=1)


def _unpack_scales(packed: Codes) -> tuple[Codes, Codes]:
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def _scaled(blocks: npt.NDArray[Any], codes: Codes) -> F32Array:
    scales, minima = _unpack_scales(blocks["scales"])
    steps = blocks["d"].astype(np.float32)[:, None] * scales.astype(np.float32)
    offsets = blocks["m"].astype(np.float32)[:, None] * minima.astype(np.float32)
    values: F32Array = steps[:, :, None] * codes.astype(np.float32) - offsets[:, :, None]
    return values.reshape(-1, SUPER_BLOCK)


def _pack_nibbles(codes: Codes) -> Codes:
    """Pack codes (num_blocks, 8, 32): of each pair of groups, the first lies in the low nibbles."""
    packed: Codes = codes[:, ::2] | codes[:, 1::2] << 4
    return packed.reshape(-1, 128)


def _unpack_nibbles(low: Codes) -> Codes:
    pairs = low.reshape(-1, 4, 1, 32)
    return np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _ratio(values: npt.NDArray[Any], steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    quotient: npt.NDArray[Any] = np.divide(
        values, steps, out=np.zeros(values.shape, np.float32), where=steps != 0
    )
    return quotient
