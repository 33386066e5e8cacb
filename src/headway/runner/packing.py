"""Packs a plan's tensors: from mapped files, a slice at a time, into the native core.

A slice's pages of the file are let go as soon as it is packed, so that memory never holds more of a file than one slice
besides the packed weights. It knows no file format: the plan says where tensors lie.
"""

import hashlib
import mmap
import os
from contextlib import ExitStack
from pathlib import Path

from headway import _native
from headway.core.errors import ModelFileError
from headway.core.plan import ModelPlan, TensorRef

SLICE_BYTES = 8 << 20
"""About as much of a file as is mapped at a time; far more than packing's threads need to stay busy."""

TILE_ROWS = 32
"""The core packs whole tiles of rows (native/README.md)."""

_IDENTITY_SAMPLE_BYTES = 4096
"""Of each tensor, when the file's digest is not known: a page, which loading reads anyway."""


def pack_tensors(model: _native.Model, plan: ModelPlan) -> str:
    """Load every tensor and finish the model; return what tells these weights from others.

    That is the file's digest where the plan knows it, else one of the files' sizes, the plan and the first bytes of every
    tensor. Raises ModelFileError (a tensor that is missing, truncated or of another shape), OSError (a file that cannot be
    read).
    """
    with ExitStack() as stack:
        files = [stack.enter_context(_map_file(path)) for path in plan.files]
        sizes = " ".join(str(len(data)) for data in files)
        digest = hashlib.sha256(f"{sizes}\n{plan.shape}\n".encode())
        for data in files:
            data.madvise(mmap.MADV_WILLNEED)
        for tensor in plan.tensors:
            name, data = plan.files[tensor.file].name, files[tensor.file]
            end = tensor.offset + tensor.num_bytes
            if tensor.offset < 0 or end > len(data):
                raise ModelFileError(f"{name} ends inside a tensor ({tensor.role}); fetch the file again.")
            digest.update(f"{tensor}\n".encode())
            digest.update(data[tensor.offset : min(end, tensor.offset + _IDENTITY_SAMPLE_BYTES)])
            try:
                _pack_tensor(model, tensor, data)
            except ValueError as error:
                raise ModelFileError(f"{name}: {error}") from error
        try:
            model.finish()
        except ValueError as error:
            raise ModelFileError(f"{plan.path.name}: {error}") from error
    return plan.file_sha256 or digest.hexdigest()


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            raise ModelFileError(f"{path.name} is empty; fetch the file again.")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def slice_rows(row_bytes: int) -> int:
    """Return how many rows of so many bytes are loaded at a time: whole tiles, about `SLICE_BYTES` of them."""
    return TILE_ROWS * max(1, SLICE_BYTES // (TILE_ROWS * row_bytes))


def load_rows(
    model: _native.Model, tensor: TensorRef, first_row: int, rows: int, data: memoryview, *, add: float = 0.0
) -> None:
    """Load rows [first_row, first_row + rows) of a tensor; raises ValueError as the core does."""
    model.load(
        role=tensor.role,
        layer=tensor.layer,
        expert=tensor.expert,
        tensor_type=tensor.type,
        first_row=first_row,
        rows=rows,
        columns=tensor.columns,
        data=data,
        add=add,
    )


def _pack_tensor(model: _native.Model, tensor: TensorRef, data: mmap.mmap) -> None:
    row_bytes = max(1, tensor.num_bytes // max(1, tensor.rows))
    step = slice_rows(row_bytes)
    begin = tensor.offset
    for first_row in range(0, max(1, tensor.rows), step):
        last = first_row + step >= tensor.rows
        end = tensor.offset + (tensor.num_bytes if last else (first_row + step) * row_bytes)
        rows = tensor.rows - first_row if last else step
        with memoryview(data) as whole, whole[begin:end] as view:
            load_rows(model, tensor, first_row, rows, view, add=tensor.add)
        page = begin // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, page, end - page)
        begin = end
