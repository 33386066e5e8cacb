"""How the shards of a GGUF model are named: NAME-00001-of-00003.gguf (llama.cpp, tools/gguf-split). It opens no file."""

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.gguf)", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardName:
    """A shard's file name, taken apart. `number` counts from 1."""

    stem: str
    number: int
    count: int
    suffix: str

    def of(self, number: int) -> str:
        """Return the file name of another shard of the same model."""
        return f"{self.stem}-{number:05}-of-{self.count:05}{self.suffix}"


def parse_shard_name(file_name: str) -> ShardName | None:
    """Return the parts of a file name without folders, or None if it is no shard's."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    return ShardName(
        stem=match["stem"], number=int(match["number"]), count=int(match["count"]), suffix=match["suffix"]
    )
