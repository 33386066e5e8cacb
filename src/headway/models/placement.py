"""Where each tensor of a model lies: every role that its shape asks for, found in the tensors that its files hold.

It knows no file format: names are data (`Holder`), and a tensor is a shape, a type and a place. A file's tensor may
hold several roles one below the other (fused projections) or one per expert (stacks). What is missing, misshapen or
left over is refused by name: a tensor that nobody asked for would change the output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from headway.core.errors import ModelFileError
from headway.core.plan import ModelShape, Role, TensorRef, TensorType
from headway.models.quote import quoted

_VECTOR_TYPES = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})
_EXPERT_ROLES = frozenset({"ffn_gate", "ffn_up", "ffn_down"})
_ROLES_OUTSIDE = frozenset({"token_embedding", "output_norm", "output"})


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a model's files: row-major `shape`, and `num_bytes` bytes at `offset` of file number `file`."""

    shape: tuple[int, ...]
    type: TensorType
    file: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A tensor by name, with `{layer}` and `{expert}`, and the roles whose rows it holds one below the other."""

    name: str
    roles: tuple[Role, ...]
    stacked: bool = False
    """A leading axis counts the experts."""


def place_tensors(
    shape: ModelShape,
    holders: Sequence[Holder],
    tensors: Mapping[str, StoredTensor],
    *,
    where: str,
    norm_add: float = 0.0,
    ignored: Callable[[str], bool] = lambda _: False,
) -> tuple[TensorRef, ...]:
    """Return the place of every tensor of a model of this `shape`, outside the layers first, then layer by layer.

    where      what errors begin with: a path
    norm_add   is added to the weights of every norm
    ignored    says by name which tensors are no part of the model
    Raises ModelFileError if a tensor is missing, of another shape or type, or unknown.
    """
    needed = _shapes(shape)
    known: set[str] = set()

    def place(layer: int | None, roles: Sequence[Role]) -> Iterator[TensorRef]:
        left = set(roles)
        for holder in holders:
            if not left.issuperset(holder.roles):
                continue
            names = _names(holder, layer, shape.num_experts)
            if names[0] not in tensors:
                continue
            left.difference_update(holder.roles)
            for expert, name in enumerate(names):
                if name not in tensors:
                    raise ModelFileError(f"{where}: the tensor {name} is missing.")
                known.add(name)
                yield from _references(
                    tensors[name],
                    holder,
                    needed,
                    layer=layer,
                    experts=shape.num_experts,
                    expert=expert,
                    what=f"{where}: the tensor {name}",
                    norm_add=norm_add,
                )
        for role in roles:
            if role in left:
                holder = next(holder for holder in holders if role in holder.roles)
                name = _names(holder, layer, shape.num_experts)[0]
                raise ModelFileError(f"{where}: the tensor {name} is missing.")

    order: Sequence[Role] = [role for role in get_args(Role) if role in needed]
    placed = list(place(None, [role for role in order if role in _ROLES_OUTSIDE]))
    inside = [role for role in order if role not in _ROLES_OUTSIDE]
    for layer in range(shape.num_layers):
        placed += place(layer, inside)
    for name in tensors:
        if name not in known and not ignored(name):
            raise ModelFileError(
                f"{where}: the tensor {quoted(name)} is not supported, it would change the output."
            )
    return tuple(placed)


def _shapes(shape: ModelShape) -> dict[Role, tuple[int, ...]]:
    """Return the roles that a model of this shape has, with their row-major shapes."""
    hidden, ffn = shape.hidden_size, shape.ffn_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    found: dict[Role, tuple[int, ...]] = {
        "token_embedding": (shape.vocab_size, hidden),
        "output_norm": (hidden,),
        "attention_norm": (hidden,),
        "query": (queries, hidden),
        "key": (keys, hidden),
        "value": (keys, hidden),
        "attention_output": (hidden, queries),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    if not shape.tied_embeddings:
        found["output"] = (shape.vocab_size, hidden)
    if shape.qkv_bias:
        found |= {"query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,)}
    if shape.qk_norm:
        found |= {"query_norm": (shape.head_dim,), "key_norm": (shape.head_dim,)}
    if shape.post_norms:
        found |= {"attention_post_norm": (hidden,), "ffn_post_norm": (hidden,)}
    if shape.num_experts:
        found["router"] = (shape.num_experts, hidden)
    return found


def _names(holder: Holder, layer: int | None, num_experts: int) -> list[str]:
    """Return the holder's tensors in a layer: one, or one for each expert."""
    if "{expert}" not in holder.name:
        return [holder.name.format(layer=layer)]
    return [holder.name.format(layer=layer, expert=expert) for expert in range(max(num_experts, 1))]


def _references(
    tensor: StoredTensor,
    holder: Holder,
    needed: Mapping[Role, tuple[int, ...]],
    *,
    layer: int | None,
    experts: int,
    expert: int,
    what: str,
    norm_add: float,
) -> Iterator[TensorRef]:
    """Yield the parts of one tensor, checked; `what` names it in errors."""
    lengths = [needed[role][0] for role in holder.roles]  # along the first axis, of a vector the only one
    rest = needed[holder.roles[0]][1:]
    expected = ((experts,) if holder.stacked else ()) + (sum(lengths), *rest)
    if tensor.shape != expected:
        raise ModelFileError(f"{what} has shape {tensor.shape} instead of {expected}.")
    if not rest and tensor.type not in _VECTOR_TYPES:
        raise ModelFileError(f"{what} is a vector of type {tensor.type.name}, which is not supported.")
    row_bytes = tensor.num_bytes // (sum(lengths) * (experts if holder.stacked else 1))
    offset = tensor.offset
    for index in range(experts if holder.stacked else 1):
        for role, length in zip(holder.roles, lengths, strict=True):
            yield TensorRef(
                role=role,
                layer=layer,
                expert=(index if holder.stacked else expert) if experts and role in _EXPERT_ROLES else None,
                type=tensor.type,
                rows=length if rest else 1,
                columns=rest[0] if rest else length,
                file=tensor.file,
                offset=offset,
                num_bytes=length * row_bytes,
                add=norm_add if role.endswith("_norm") else 0.0,
            )
            offset += length * row_bytes
