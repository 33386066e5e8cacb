"""Mutations of JSON that stay JSON: bytes that libFuzzer changes at random are refused by the first look at them."""

import json
import random
from typing import Any

import atheris  # type: ignore[import-untyped]

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e-320, 1e308,
    "", "a", "\n", "\x00", "\ud800", "\u2028", "\U0001f600", "auto", "none", "required", "user", "tool", "function",
    "json_schema", "string", "object", "F32", "BF16", "linear", "yarn", "llama3", "longrope", "dynamic",
    [], {}, [[]], {"": {}}, [1, "a"], ["a"] * 40, [[1]] * 40, {"type": "text", "text": "x"}, {"$ref": "#"},
)  # fmt: skip


def mutate_json(data: bytes, max_size: int, seed: int) -> bytes:
    """Return `data`, JSON, with a value replaced, removed, copied or moved; other bytes are changed as libFuzzer does."""
    chance = random.Random(seed)
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, max_size))
    changed = json.dumps(mutate_tree(tree, chance), separators=(",", ":")).encode()
    if chance.random() < 0.05:
        changed = bytes(atheris.Mutate(changed, max_size))
    return changed if len(changed) <= max_size else data


def mutate_tree(tree: Any, chance: random.Random) -> Any:
    """Return `tree`, of dicts, lists and scalars as JSON has them, with up to five values changed; it may be changed."""
    root = [tree]
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _change(root, chance)
    return root[0]


def _change(root: list[Any], chance: random.Random) -> None:
    places = _places(root)
    holder, key = chance.choice(places) if chance.random() < 0.3 else _descend(root, chance)
    match chance.randrange(5):
        case 0:
            holder[key] = _copy(chance.choice(_VALUES))
        case 1 if holder is not root:
            del holder[key]
        case 2:
            other, name = chance.choice(places)
            holder[key] = _copy(other[name])
        case 3 if isinstance(holder, dict):
            holder[chance.choice([str(name) for _, name in places])] = _copy(holder[key])
        case 4 if isinstance(holder[key], int):
            holder[key] = int(holder[key]) + chance.choice((-1, 1, -(2**31), 2**32, 2**62))
        case _:
            holder[key] = [_copy(holder[key]) for _ in range(chance.choice((0, 1, 2, 3)))]


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _descend(root: list[Any], chance: random.Random) -> tuple[Any, Any]:
    """Return a (container, key or index), each level's with the same chance: long lists do not outweigh what is above."""
    holder, key = root, 0
    while isinstance(holder[key], dict | list) and holder[key] and chance.random() < 0.8:
        holder = holder[key]
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    return holder, key


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) below `node`."""
    places, pending = [], [node]
    while pending:
        holder = pending.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])
    return places
