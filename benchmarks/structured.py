"""What grammars cost, and llguidance against xgrammar: `python benchmarks/structured.py`.

Per vocabulary and grammar, in microseconds of processor time (so that neighbours do not count): compiling (median of 5),
and the mask before each token of a valid answer (median, 99th percentile and greatest of 5 fresh matchers, which is what
requests see). Then what a step of the engine takes outside the runner with 1 and 16 sequences, free and constrained.

xgrammar needs PyTorch and is no dependency of ours. To compare, write the vocabularies and read them where it is installed:

    python benchmarks/structured.py --write-tokens tokens.json
    OTHER_PYTHON benchmarks/structured.py --library xgrammar --tokens tokens.json

The vocabularies are the demo model's and a synthetic one of 150,000 random words, worse than a real one of that size because
random letters share few beginnings.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

REPEATS = 5
SYNTHETIC_SIZE = 150_000

FLAT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "admin": {"type": "boolean"}},
    "required": ["name", "age", "admin"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "state": {"enum": ["open", "closed", "waiting for customer"]},
        "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
        "note": {"anyOf": [{"type": "string", "maxLength": 200}, {"type": "null"}]},
    },
    "required": ["id", "state", "lines", "note"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {
                "sku": {"type": "string"},
                "count": {"type": "integer"},
                "price": {"type": "number"},
            },
            "required": ["sku", "count", "price"],
            "additionalProperties": False,
        }
    },
}
KINDS = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["low", "middle", "high"]})
WIDE = {
    "type": "object",
    "properties": {f"property_{index}": KINDS[index % 4] for index in range(30)},
    "required": [f"property_{index}" for index in range(30)],
    "additionalProperties": False,
}
TEXT = "The quick brown fox jumps over the lazy dog, twice; nobody knows why."
VALUES = (TEXT, 12345, True, "middle")
REGEX = r"[A-Z][a-z]+( [a-z]+){3,12}, [0-9]{1,3} (kg|km|years)\."
LARK = 'start: sum\nsum: term (("+" | "-") term)*\nterm: /[0-9]+/ | "(" sum ")"\n'
EBNF = 'root ::= term (("+" | "-") term)*\nterm ::= [0-9]+ | "(" root ")"\n'
LINE = {"sku": "left-handed screwdriver", "count": 3, "price": 12.5}
CASES: tuple[tuple[str, str, Any, str], ...] = (
    ("any object", "json", {"type": "object"}, json.dumps({"a": [1, TEXT, {"b": None}], "c": TEXT})),
    ("flat schema", "json", FLAT, json.dumps({"name": TEXT, "age": 36, "admin": False})),
    (
        "nested schema",
        "json",
        NESTED,
        json.dumps({"id": "AB-1234", "state": "waiting for customer", "lines": [LINE] * 4, "note": TEXT}),
    ),
    ("30 properties", "json", WIDE, json.dumps({f"property_{i}": VALUES[i % 4] for i in range(30)})),
    ("regex", "regex", REGEX, "The weight of the smallest known elephant was about, 120 kg."),
    ("grammar", "grammar", (LARK, EBNF), "12+(345-(6+7))-89+(1-(2+(3-4)))"),
)


class Library:
    """A grammar library on one vocabulary: `compile` gives (a mask function, a function that takes a token)."""

    name: str

    def compile(self, kind: str, source: Any) -> tuple[Callable[[], object], Callable[[int], bool]]:
        """Compile one grammar."""
        raise NotImplementedError


class Llguidance(Library):
    """Through `headway.models.grammar`, as it is used."""

    name = "llguidance"

    def __init__(self, tokens: list[bytes], end_id: int) -> None:
        from headway.models.grammar import GrammarVocabulary

        self.vocabulary = GrammarVocabulary(Table(tokens, end_id), len(tokens))
        self._end_id = end_id

    def compile(self, kind: str, source: Any) -> tuple[Callable[[], object], Callable[[int], bool]]:
        """Compile one grammar."""
        from headway.core.request import Grammar

        match kind:
            case "json":
                grammar = Grammar(kind="json_schema", source=json.dumps(source))
            case "regex":
                grammar = Grammar(kind="regex", source=source)
            case _:
                grammar = Grammar(kind="lark", source=source[0])
        matcher = self.vocabulary.compile(grammar, (self._end_id,))
        return matcher.mask, lambda token: matcher.advance([token])


class Xgrammar(Library):
    """As its documentation has it, one thread, compact JSON with one space, nothing cached between grammars."""

    name = "xgrammar"

    def __init__(self, tokens: list[bytes], end_id: int) -> None:
        import xgrammar  # type: ignore[import-not-found, unused-ignore]

        self._package: Any = xgrammar
        info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[end_id])
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._mask = xgrammar.allocate_token_bitmask(1, len(tokens))

    def compile(self, kind: str, source: Any) -> tuple[Callable[[], object], Callable[[int], bool]]:
        """Compile one grammar."""
        match kind:
            case "json":
                compiled = self._compiler.compile_json_schema(
                    json.dumps(source), any_whitespace=False, separators=(", ", ": "), strict_mode=False
                )
            case "regex":
                compiled = self._compiler.compile_regex(source)
            case _:
                compiled = self._compiler.compile_grammar(source[1])
        matcher = self._package.GrammarMatcher(compiled)
        return lambda: matcher.fill_next_token_bitmask(self._mask), matcher.accept_token


class Table:
    """Tokens as `models.grammar.TokenTable`; longest match first."""

    def __init__(self, tokens: list[bytes], end_id: int) -> None:
        self.vocab_size = len(tokens)
        self.eos_ids = (end_id,)
        self._tokens = tokens
        self._ids = {token: index for index, token in enumerate(tokens) if index != end_id}
        self._longest = max(map(len, tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """Return a token's bytes."""
        return self._tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        """Return whether it is the end."""
        return token_id in self.eos_ids

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> Sequence[int]:  # noqa: ARG002 — the seam's
        """Return the ids of `text`."""
        data, ids = text.encode(), []
        while data:
            length = next(n for n in range(min(self._longest, len(data)), 0, -1) if data[:n] in self._ids)
            ids.append(self._ids[data[:length]])
            data = data[length:]
        return ids


def demo_tokens() -> tuple[list[bytes], int]:
    """Return the demo model's tokens and its end."""
    from headway.models.fetch import resolve_model
    from headway.models.text_side import open_text

    tokenizer = open_text(resolve_model("smollm2")).tokenizer
    tokens = [
        b"" if tokenizer.is_special(i) else tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)
    ]
    end_id = tokenizer.eos_ids[0]
    tokens[end_id] = b"<end>"
    return tokens, end_id


def synthetic_tokens(size: int = SYNTHETIC_SIZE) -> tuple[list[bytes], int]:
    """Return the end, every byte and random words."""
    source = random.Random(0)
    letters = b"etaoinshrdlcumwfgypbvkjxqzETAOINS0123456789_(){}\"':;,.=-/<>"
    words: set[bytes] = set()
    while len(words) < size - 257:
        word = bytes(source.choices(letters, k=min(14, 2 + int(source.expovariate(0.25)))))
        words.add(b" " + word if source.random() < 0.4 else word)
    return [b"<end>", *(bytes([byte]) for byte in range(256)), *sorted(words)], 0


def microseconds(call: Callable[[], object]) -> float:
    """Return how much processor time `call` takes, in all threads."""
    started_ns = time.process_time_ns()
    call()
    return (time.process_time_ns() - started_ns) / 1000


def measure(library: Library, kind: str, source: Any, ids: Iterable[int]) -> tuple[float, list[float]]:
    """Return the median of compiling, and every mask along `ids`."""
    compiling, masks = [], []
    for _ in range(REPEATS):
        started_ns = time.process_time_ns()
        mask, advance = library.compile(kind, source)
        compiling.append((time.process_time_ns() - started_ns) / 1000)
        for token in ids:
            masks.append(microseconds(mask))
            if not advance(token):
                raise ValueError(f"{library.name} does not take the answer")
    return statistics.median(compiling), sorted(masks)


def report(
    library: Callable[[list[bytes], int], Library], name: str, tokens: list[bytes], end_id: int
) -> Library:
    """Print one vocabulary's lines."""
    made: list[Library] = []
    built = microseconds(lambda: made.append(library(tokens, end_id)))
    print(f"{made[0].name}, {name} ({len(tokens)} tokens): vocabulary {built / 1e6:.2f} s")
    table = Table(tokens, end_id)
    for title, kind, source, answer in CASES:
        ids = table.encode(answer)
        compiling, masks = measure(made[0], kind, source, ids)
        p99 = masks[int(len(masks) * 0.99)]
        print(
            f"  {title:14} compile {compiling:8.0f}   mask median {statistics.median(masks):6.1f}"
            f"  p99 {p99:7.1f}  max {masks[-1]:7.1f}   ({len(ids)} tokens)"
        )
    return made[0]


def report_steps(vocabulary: Any, tokens: list[bytes], end_id: int) -> None:
    """Print what a decode step of the engine takes outside the runner, with constrained sequences in it."""
    from headway.core.clock import MonotonicClock
    from headway.core.config import SchedulerConfig
    from headway.core.messages import EngineInfo, Submit
    from headway.core.request import Grammar, Request
    from headway.core.sampling import SamplingParams
    from headway.engine.engine import Engine
    from headway.engine.grammars import InlineGrammars
    from headway.runner.step import RunnerInfo, Step, StepResult
    from step_only import StepOnlyRunner

    answer = Table(tokens, end_id).encode(json.dumps([TEXT] * 12))

    class Scripted(StepOnlyRunner):
        """Draws the answer's tokens by position, whatever it is shown."""

        info = RunnerInfo(
            vocab_size=len(tokens), max_context=4096, num_blocks=4096, block_size=16, system_fingerprint=""
        )

        def execute(self, step: Step) -> StepResult:
            """Draw at once."""
            assert step.sampling is not None
            return StepResult(tokens=[answer[position - 4] for position in step.sampling.positions])

    strings = Grammar(kind="json_schema", source='{"type": "array", "items": {"type": "string"}}')
    for num_sequences in (1, 16):
        for grammar in (None, strings):
            runner = Scripted()
            info = EngineInfo(
                model="m", vocab_size=len(tokens), max_context=4096, num_blocks=4096, block_size=16,
                system_fingerprint="",
            )  # fmt: skip
            grammars = InlineGrammars(
                lambda request: [vocabulary.compile(request.grammar, request.stop_token_ids)]
            )
            engine = Engine(runner, SchedulerConfig(itl_target_s=None), MonotonicClock(), info, grammars)
            for index in range(num_sequences):
                engine.handle(
                    Submit(
                        Request(
                            request_id=str(index),
                            token_ids=(1, 2, 3, 4),
                            sampling=SamplingParams(),
                            max_tokens=len(answer) - 1,
                            grammar=grammar,
                        )
                    )
                )
            engine.step()
            steps = []
            while engine.has_work:
                steps.append(microseconds(engine.step))
            steps = sorted(steps[:-1])
            print(
                f"  step of {num_sequences:2}, {'free' if grammar is None else 'constrained':11}"
                f"  median {statistics.median(steps):7.1f}  p99 {steps[int(len(steps) * 0.99)]:7.1f}"
            )


def vocabularies(path: Path | None) -> Iterator[tuple[str, list[bytes], int]]:
    """Yield (name, tokens, end)."""
    if path is not None:
        for name, tokens, end_id in json.loads(path.read_text()):
            yield name, [bytes.fromhex(token) for token in tokens], end_id
        return
    yield "demo model", *demo_tokens()
    yield "synthetic", *synthetic_tokens()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=("llguidance", "xgrammar"), default="llguidance")
    parser.add_argument("--tokens", type=Path, help="read the vocabularies that --write-tokens wrote")
    parser.add_argument("--write-tokens", type=Path, help="write the vocabularies and end")
    arguments = parser.parse_args()
    if arguments.write_tokens is not None:
        found = [(name, [t.hex() for t in tokens], end) for name, tokens, end in vocabularies(None)]
        arguments.write_tokens.write_text(json.dumps(found))
        return
    for name, tokens, end_id in vocabularies(arguments.tokens):
        if arguments.library == "xgrammar":
            report(Xgrammar, name, tokens, end_id)
            continue
        library = report(Llguidance, name, tokens, end_id)
        assert isinstance(library, Llguidance)
        report_steps(library.vocabulary, tokens, end_id)


if __name__ == "__main__":
    main()
