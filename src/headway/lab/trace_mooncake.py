"""Reads the lines of Mooncake's traces (FAST '25): JSON with times in ms, and prompts as identifiers of 512-token blocks.

Their times lie on a grid of about 3 s; `trace.dequantise` spreads them.
"""

from typing import Annotated

import msgspec

from headway.core.clock import NS_PER_MS
from headway.lab.trace import MAX_TOKENS, BadRowError, TraceRow

BLOCK_TOKENS = 512
"""What one identifier stands for; a prompt's last block may be shorter."""

Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[int, ...] = ()


_decoder = msgspec.json.Decoder(_Line)


def parse_mooncake(number: int, line: str) -> TraceRow:
    """Return the request of one line, its time as in the file; raises BadRowError."""
    try:
        fields = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRowError(f"it is no Mooncake row ({error})") from None
    blocks = -(-fields.input_length // BLOCK_TOKENS)
    if fields.hash_ids and len(fields.hash_ids) != blocks:
        raise BadRowError(
            f"{fields.input_length} tokens are {blocks} blocks of {BLOCK_TOKENS}, and it names {len(fields.hash_ids)}"
        )
    return TraceRow(
        number,
        round(fields.timestamp * NS_PER_MS),
        fields.input_length,
        fields.output_length,
        hash_ids=fields.hash_ids,
    )
