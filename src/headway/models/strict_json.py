"""JSON that came with a model, read without trusting it: within bounds and without ambiguity.

It knows no file's meaning. Refused are duplicate keys (readers differ in which one wins), NaN and infinities (no JSON),
text that is not UTF-8 and anything nested too deeply. What can be built is bounded by the number of separators, counted
before parsing: every value but the first follows a comma, a colon or a bracket. RFC 8259.
"""

import json
from pathlib import Path
from typing import NoReturn

from headway.core.errors import ModelFileError
from headway.models.model_folder import read_inside
from headway.models.quote import quoted

MAX_VALUES = 1_500_000
"""Of the largest open models' headers, with 90,000 tensors, some 1,100,000 are needed. They take at most 150 MB."""


def read_json_file(folder: Path, name: str, *, max_bytes: int) -> dict[str, object]:
    """Return the JSON object in the file `name` of `folder`.

    Raises ModelFileError, one sentence, if it leads out of the folder, is longer than `max_bytes` or no JSON object.
    """
    return decode_json_object(read_inside(folder, name, max_bytes=max_bytes), f"{folder / name}: the file")


def decode_json_object(data: bytes, what: str) -> dict[str, object]:
    """Return the JSON object in `data`; `what` names it in errors ("PATH: the header").

    Needs up to nine times the size of `data`, and about 100 bytes for each of at most `MAX_VALUES` values. Raises
    ModelFileError, one sentence.
    """
    if sum(map(data.count, (b",", b":", b"[", b"{"))) > MAX_VALUES:
        raise ModelFileError(f"{what} has more than {MAX_VALUES} values.")
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise ModelFileError(f"{what} is not valid UTF-8.") from None
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply.") from None
    except ValueError as error:  # not JSON, a duplicate key, a number of more digits than Python reads
        raise ModelFileError(f"{what} is not valid JSON: {str(error)[:200]}.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is not a JSON object.")
    return value


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {quoted(name)} occurs twice")
        found[name] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
