"""What a run of `formats.py` is turned into: the KV cache's shares, which are arithmetic, and Markdown.

It measures nothing and knows no model: sizes come in, figures go out.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.render import replace_table

BATCHES = (1, 8, 32, 64)
CONTEXTS = (1_024, 4_000)
BEGIN, END = "<!-- formats: begin -->", "<!-- formats: end -->"

NOTE = (
    "The demo model's file is quantised already (Q4_1, the embedding Q8_0), and the float32 reference computes with these "
    "values. `auto` keeps them; int4 keeps the Q4_1 blocks and takes the embedding from 8 bits to 4; nf4 quantises all "
    "quantised values once more, which costs more than quantising a model's own weights would."
)


def kv_shares(
    *,
    weight_bytes: int,
    step_weight_bytes: int,
    kv_token_bytes: int,
    seen_tokens: Mapping[int, float],
    batches: Sequence[int] = BATCHES,
) -> list[dict[str, float]]:
    """Return the KV cache's share of memory, and of the bytes that a decode step reads, for every context and batch.

    Memory is `weight_bytes` and the whole context of each sequence; a step reads `step_weight_bytes` once for all sequences
    and of each the keys and values that attention sees: `seen_tokens` by context (fewer than it with sliding windows).
    """
    shares = []
    for context, seen in seen_tokens.items():
        for batch in batches:
            held, read = batch * context * kv_token_bytes, batch * seen * kv_token_bytes
            shares.append(
                {
                    "context": context,
                    "batch": batch,
                    "kv_gb": round(held / 1e9, 4),
                    "memory_share": round(held / (held + weight_bytes), 4),
                    "read_share": round(read / (read + step_weight_bytes), 4),
                }
            )
    return shares


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of every figure."""
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def render(data: Mapping[str, Any], source: str | None = None) -> str:
    """Return Markdown of a run; `source` is the file that has it."""
    return "\n".join(_lines(data, source))


def render_into(document: Path, data: Mapping[str, Any], source: str | None = None) -> None:
    """Put `render` between the document's markers; raises ValueError if they are not there."""
    replace_table(document, render(data, source), BEGIN, END)


def _lines(data: Mapping[str, Any], source: str | None) -> Iterator[str]:
    machine, settings = data["machine"], data["settings"]
    raw = f" Raw data: `{source}`." if source else ""
    threads = f", {data['threads']} threads" if data["threads"] is not None else ""
    yield (
        f"{data['date']}, {machine['cpu']} ({', '.join(machine['cpu_flags'])}){threads}; medians of "
        f"{settings['repeat']} interleaved rounds.{raw}"
    )
    for name, model in data["models"].items():
        judged = any("accuracy" in side for side in model["sides"])
        yield from ("", f"**{name}**", "")
        yield from _figures(model, settings, judged)
        if judged:
            yield from ("", NOTE)
        yield from ("", *_shares(model))
        for left_out, reason in model.get("left_out", {}).items():
            yield from ("", f"{left_out} is left out: {reason}.")


def _figures(model: Mapping[str, Any], settings: Mapping[str, Any], judged: bool) -> Iterator[str]:
    heads = [
        "weights",
        "KV",
        "weights, GB",
        f"prefill {settings['prompt_tokens']}, tok/s",
        f"decode at {settings['context']:,} tokens, ms a step",
    ]
    if judged:
        heads += ["NLL against float32", "greedy tokens the same"]
    yield from _head(heads)
    for side in model["sides"]:
        cells = [side["format"], side["kv"]]
        if "error" in side:
            cells += [f"not possible: {side['error']}", *[""] * (len(heads) - 3)]
        else:
            median = side["medians"]
            cells += [
                f"{side['weight_bytes'] / 1e9:.3f}",
                f"{median['prefill_tok_s']:.0f}",
                f"{median['decode_ms']:.2f}",
            ]
            if judged:
                cells += _accuracy(side["accuracy"])
        yield f"| {' | '.join(cells)} |"


def _accuracy(found: Mapping[str, Any]) -> list[str]:
    deviation, error = 100 * found["deviation"], 100 * found["deviation_error"]
    return [f"{deviation:+.2f}% ± {error:.2f}%", f"{found['greedy_same']} of {found['greedy_tokens']}"]


def _shares(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of shares; formats that take equal memory share a row."""
    rows: dict[tuple[int, str], tuple[list[str], Mapping[str, Any]]] = {}
    for side in model["sides"]:
        if "error" not in side:
            rows.setdefault((side["weight_bytes"], side["kv"]), ([], side))[0].append(side["format"])
    if not rows:
        return
    yield (
        "The KV cache's share of memory, which is also its share of the bytes that a decode step reads, unless that one "
        "follows a slash. Computed from sizes, not measured:"
    )
    yield ""
    first = next(iter(rows.values()))[1]["shares"]
    yield from _head(
        ["weights", "KV", *(f"{share['batch']} × {share['context']:,} tokens" for share in first)]
    )
    for (_, kv), (names, side) in rows.items():
        yield f"| {', '.join(names)} | {kv} | {' | '.join(map(_share, side['shares']))} |"


def _share(share: Mapping[str, float]) -> str:
    memory, read = (f"{100 * share[name]:.0f}%" for name in ("memory_share", "read_share"))
    return memory if memory == read else f"{memory} / {read}"


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
    yield "|---" * len(cells) + "|"
