"""Numpy encoders and decoders of ggml's block formats, for tests: the reference that native code is compared with.

Layouts as in ggml's block structures (ggml-common.h): 32 elements to a block; in blocks of 4 and 5 bits byte j holds
element j in its low and element j + 16 in its high nibble. Blocks of 256 are in `ggml_super_blocks`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.plan import TensorType
from support.ggml_super_blocks import (
    SUPER_BLOCK,
    Codes,
    F32Array,
    decode_q4_k,
    decode_q5_k,
    decode_q6_k,
    encode_q4_k,
    encode_q5_k,
    encode_q6_k,
)

__all__ = ["F32Array", "decode", "encode"]

_BLOCK = 32
_IQ4_NL_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def encode(values: F32Array, kind: TensorType) -> bytes:
    """Return `values` (…, columns) as the bytes of tensor type `kind`; columns is a multiple of its block."""
    match kind:
        case TensorType.F32:
            return values.astype("<f4").tobytes()
        case TensorType.F16:
            return values.astype("<f2").tobytes()
        case TensorType.BF16:
            bits = values.astype("<f4").view(np.uint32).astype(np.uint64)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
            return rounded.astype("<u2").tobytes()
        case TensorType.Q4_K:
            return encode_q4_k(values.reshape(-1, SUPER_BLOCK))
        case TensorType.Q5_K:
            return encode_q5_k(values.reshape(-1, SUPER_BLOCK))
        case TensorType.Q6_K:
            return encode_q6_k(values.reshape(-1, SUPER_BLOCK))
    blocks = values.astype(np.float32).reshape(-1, _BLOCK)
    match kind:
        case TensorType.Q8_0:
            scales = _half(np.abs(blocks).max(axis=1) / 127)
            quants = np.rint(blocks * _inverse(scales)).clip(-127, 127).astype(np.int8)
            return _join(scales, quants)
        case TensorType.Q4_0:
            scales = _half(_extremes(blocks) / -8)
            return _join(scales, _pack(_codes(blocks * _inverse(scales) + 8, 15)))
        case TensorType.Q5_0:
            scales = _half(_extremes(blocks) / -16)
            codes = _codes(blocks * _inverse(scales) + 16, 31)
            return _join(scales, _pack_fifth(codes), _pack(codes & 15))
        case TensorType.Q4_1:
            scales, minima, codes = _affine(blocks, 15)
            return _join(scales, minima, _pack(codes))
        case TensorType.Q5_1:
            scales, minima, codes = _affine(blocks, 31)
            return _join(scales, minima, _pack_fifth(codes), _pack(codes & 15))
        case TensorType.IQ4_NL:
            scales = _half(_extremes(blocks) / -127)
            distances = np.abs((blocks * _inverse(scales))[:, :, None] - _IQ4_NL_VALUES)
            return _join(scales, _pack(distances.argmin(axis=2).astype(np.uint8)))
    raise ValueError(f"no encoder for {kind!r}")


def decode(data: bytes, kind: TensorType, shape: tuple[int, ...]) -> F32Array:
    """Return the float32 values of `data`, which `encode` or a GGUF file stores as `kind`, in `shape`."""
    match kind:
        case TensorType.F32:
            return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)
        case TensorType.F16:
            return np.frombuffer(data, "<f2").astype(np.float32).reshape(shape)
        case TensorType.BF16:
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
        case TensorType.Q4_K:
            return decode_q4_k(data).reshape(shape)
        case TensorType.Q5_K:
            return decode_q5_k(data).reshape(shape)
        case TensorType.Q6_K:
            return decode_q6_k(data).reshape(shape)
        case TensorType.Q8_0:
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "i1", (_BLOCK,))])
            return _scaled(blocks, blocks["q"].astype(np.float32)).reshape(shape)
        case TensorType.Q4_0:
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "u1", (_BLOCK // 2,))])
            return _scaled(blocks, _unpack(blocks["q"]).astype(np.float32) - 8).reshape(shape)
        case TensorType.IQ4_NL:
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "u1", (_BLOCK // 2,))])
            return _scaled(blocks, _IQ4_NL_VALUES[_unpack(blocks["q"])]).reshape(shape)
        case TensorType.Q4_1:
            blocks = np.frombuffer(data, [("d", "<f2"), ("m", "<f2"), ("q", "u1", (_BLOCK // 2,))])
            return _shifted(blocks, _unpack(blocks["q"])).reshape(shape)
        case TensorType.Q5_0:
            blocks = np.frombuffer(data, [("d", "<f2"), ("h", "u1", (4,)), ("q", "u1", (_BLOCK // 2,))])
            return _scaled(blocks, _five_bits(blocks).astype(np.float32) - 16).reshape(shape)
        case TensorType.Q5_1:
            blocks = np.frombuffer(
                data, [("d", "<f2"), ("m", "<f2"), ("h", "u1", (4,)), ("q", "u1", (_BLOCK // 2,))]
            )
            return _shifted(blocks, _five_bits(blocks)).reshape(shape)


def _half(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float16]:
    return values.astype(np.float16)


def _inverse(scales: npt.NDArray[np.float16]) -> F32Array:
    wide = scales.astype(np.float32)
    return np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)[:, None]


def _join(*columns: npt.NDArray[Any]) -> bytes:
    num_blocks = len(columns[0])
    return np.concatenate(
        [column.reshape(num_blocks, -1).view(np.uint8) for column in columns], axis=1
    ).tobytes()


def _extremes(blocks: F32Array) -> F32Array:
    """Return each block's value of the largest magnitude, with its sign."""
    places = np.abs(blocks).argmax(axis=1)[:, None]
    extremes: F32Array = np.take_along_axis(blocks, places, axis=1)[:, 0]
    return extremes


def _affine(blocks: F32Array, highest: int) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16], Codes]:
    """Return scales, minima and codes up to `highest`: scale * code + minimum."""
    minima = _half(blocks.min(axis=1))
    scales = _half((blocks.max(axis=1) - minima.astype(np.float32)) / highest)
    shifted = blocks - minima.astype(np.float32)[:, None]
    return scales, minima, _codes(shifted * _inverse(scales), highest)


def _codes(values: F32Array, highest: int) -> Codes:
    codes: Codes = np.rint(values).clip(0, highest).astype(np.uint8)
    return codes


def _pack(nibbles: Codes) -> Codes:
    low, high = nibbles[:, : _BLOCK // 2], nibbles[:, _BLOCK // 2 :]
    packed: Codes = np.bitwise_or(low, high << 4, dtype=np.uint8)
    return packed


def _pack_fifth(codes: Codes) -> Codes:
    return np.packbits(codes >> 4, axis=1, bitorder="little")


def _unpack(packed: Codes) -> Codes:
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _five_bits(blocks: npt.NDArray[Any]) -> Codes:
    codes: Codes = _unpack(blocks["q"]) | np.unpackbits(blocks["h"], axis=1, bitorder="little") << 4
    return codes


def _scaled(blocks: npt.NDArray[Any], quants: F32Array) -> F32Array:
    scaled: F32Array = blocks["d"].astype(np.float32)[:, None] * quants
    return scaled


def _shifted(blocks: npt.NDArray[Any], codes: Codes) -> F32Array:
    shifted: F32Array = _scaled(blocks, codes.astype(np.float32)) + blocks["m"].astype(np.float32)[:, None]
    return shifted
