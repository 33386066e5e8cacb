"""Tables for a terminal."""

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], alignments: str) -> Iterator[str]:
    """Yield a line for each row, columns two spaces apart; `alignments` has `<` or `>` for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, alignments, widths, strict=True)
        yield "  ".join(f"{text:{alignment}{width}}" for text, alignment, width in cells).rstrip()
