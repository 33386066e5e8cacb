"""Numpy encoders and decoders of ggml's block formats, for tests: the reference that native code is compared with.

Layouts as in ggml's block structures (ggml-common.h): 32 elements to a block; in Q4 blocks byte j holds element j in
its low and element j + 16 in its high nibble.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.plan import TensorType

F32Array = npt.NDArray[np.float32]

_BLOCK = 32


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
    blocks = values.astype(np.float32).reshape(-1, _BLOCK)
    match kind:
        case TensorType.Q8_0:
            scales = _half(np.abs(blocks).max(axis=1) / 127)
            quants = np.rint(blocks * _inverse(scales)).clip(-127, 127).astype(np.int8)
            return _join(scales, quants)
        case TensorType.Q4_0:
            extremes = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
            scales = _half(extremes / -8)
            nibbles = np.rint(blocks * _inverse(scales) + 8).clip(0, 15).astype(np.uint8)
            return _join(scales, _pack(nibbles))
        case TensorType.Q4_1:
            minima = _half(blocks.min(axis=1))
            scales = _half((blocks.max(axis=1) - minima.astype(np.float32)) / 15)
            shifted = blocks - minima.astype(np.float32)[:, None]
            nibbles = np.rint(shifted * _inverse(scales)).clip(0, 15).astype(np.uint8)
            return _join(scales, minima, _pack(nibbles))
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
        case TensorType.Q8_0:
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "i1", (_BLOCK,))])
            return _scaled(blocks, blocks["q"].astype(np.float32)).reshape(shape)
        case TensorType.Q4_0:
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "u1", (_BLOCK // 2,))])
            return _scaled(blocks, _unpack(blocks["q"]) - 8).reshape(shape)
        case TensorType.Q4_1:
            blocks = np.frombuffer(data, [("d", "<f2"), ("m", "<f2"), ("q", "u1", (_BLOCK // 2,))])
            scaled = _scaled(blocks, _unpack(blocks["q"]))
            return (scaled + blocks["m"].astype(np.float32)[:, None]).reshape(shape)


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


def _pack(nibbles: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    low, high = nibbles[:, : _BLOCK // 2], nibbles[:, _BLOCK // 2 :]
    packed: npt.NDArray[np.uint8] = np.bitwise_or(low, high << 4, dtype=np.uint8)
    return packed


def _unpack(packed: npt.NDArray[np.uint8]) -> F32Array:
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _scaled(blocks: npt.NDArray[Any], quants: F32Array) -> F32Array:
    scaled: F32Array = blocks["d"].astype(np.float32)[:, None] * quants
    return scaled
