"""A runner without a model, for tests: deterministic, strict, and as sensitive to wrong KV blocks as a real one.

Instead of keys and values each (block, slot) stores its token and a state, a hash of the state before it, the token, its
position and the adapter, like a real hidden state. A drawn token is a hash over all states and tokens that the row reads
back through its block table. So a wrong block table, a missed copy, a stale or prematurely shared block changes the
output, while batching, chunking, caching and preemption must not.

Greedy rows depend on the context only; other rows also on seed, choice, position and the sampling parameters, and rows
with a penalty on their history. Vocabulary masks and logit bias (±100 forces or bans, as in OpenAI's API) are honoured.

It knows no scheduler and no block pool. It checks more than the contract asks: a block written by one sequence may not be
in another one's table within the same step.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from headway.core.clock import ManualClock
from headway.core.messages import TokenLogprobs
from headway.runner.step import OutputKind, RunnerInfo, SamplingBatch, Step, StepResult
from headway.runner.step_check import check_step, written_blocks

FORCING_BIAS = 100.0
HIDDEN_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """What a script sees of a row: all tokens read back through the block table, and what keys the draw."""

    tokens: tuple[int, ...]
    choice: int
    position: int
    seed: int


Script = Callable[[DrawnRow], int | None]
"""Returns the token to draw at a row, or None for the hash's choice."""


class FakeRunner:
    """Implements `headway.runner.step.Runner`.

    script   decides single tokens, for tests that need a certain text
    clock    advanced by `cost_ns(step)` in every step
    steps    every executed step, for tests that look at what was asked; None = do not keep
    bound    the blocks that were given memory ahead, in order
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 16,
        vocab_size: int = 512,
        max_context: int = 1024,
        script: Script | None = None,
        clock: ManualClock | None = None,
        cost_ns: Callable[[Step], int] | None = None,
        keep_steps: bool = False,
    ) -> None:
        self._info = RunnerInfo(
            vocab_size=vocab_size,
            max_context=max_context,
            num_blocks=num_blocks,
            block_size=block_size,
            system_fingerprint="fake",
        )
        self._script = script
        self._clock = clock
        self._cost_ns = cost_ns
        self._failure: Exception | None = None
        self.steps: list[Step] | None = [] if keep_steps else None
        self.bound: list[int] = []
        self._tokens = array("i", [-1]) * (num_blocks * block_size)
        self._states = array("Q", [0xDEAD_BEEF_DEAD_BEEF]) * (num_blocks * block_size)  # never a valid state

    @property
    def info(self) -> RunnerInfo:
        """What this runner is."""
        return self._info

    def fail_next(self, error: Exception) -> None:
        """Make the next `execute` raise `error` after it has written garbage, as a runner that breaks midway would."""
        self._failure = error

    def execute(self, step: Step) -> StepResult:
        """Store every token of `step`, then draw at its rows. Raises ValueError for a step that breaks the contract."""
        check_step(step, self._info)
        if self.steps is not None:
            self.steps.append(step)
        if self._clock is not None and self._cost_ns is not None:
            self._clock.advance(self._cost_ns(step))
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._scribble(step)
            raise failure
        for index in range(len(step.context_lens)):
            self._write(step, index)
        return self._draw(step)

    def read_block(self, block: int) -> bytes:
        """Return one block's tokens and states."""
        low, high = self._slots(block)
        return self._tokens[low:high].tobytes() + self._states[low:high].tobytes()

    def write_block(self, block: int, data: bytes) -> None:
        """Overwrite one block; raises ValueError for a wrong length."""
        low, high = self._slots(block)
        size = high - low
        if len(data) != size * (self._tokens.itemsize + self._states.itemsize):
            raise ValueError(f"a block has {size} slots of 12 bytes, got {len(data)} bytes")
        cut = size * self._tokens.itemsize
        self._tokens[low:high] = array("i", data[:cut])
        self._states[low:high] = array("Q", data[cut:])

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block onto another."""
        self.write_block(target, self.read_block(source))

    def bind_block(self, block: int) -> None:
        """Note that a block was given its memory."""
        self._slots(block)
        self.bound.append(block)

    def _slots(self, block: int) -> tuple[int, int]:
        if not 0 <= block < self._info.num_blocks:
            raise ValueError(f"no block {block}")
        return block * self._info.block_size, (block + 1) * self._info.block_size

    def _write(self, step: Step, index: int) -> None:
        """Store the tokens of sequence `index` behind its context."""
        size = self._info.block_size
        table = step.block_table[step.block_table_starts[index] : step.block_table_starts[index + 1]]
        position = step.context_lens[index]
        if position:
            before = position - 1
            state = self._states[table[before // size] * size + before % size]
        else:
            state = step.adapter_ids[index] + 1
        for token in step.tokens[step.sequence_starts[index] : step.sequence_starts[index + 1]]:
            state = _mix(state, token, position)
            slot = table[position // size] * size + position % size
            self._tokens[slot] = token
            self._states[slot] = state
            position += 1

    def _scribble(self, step: Step) -> None:
        """Leave garbage in every block that `step` would have written."""
        for index in range(len(step.context_lens)):
            for block in written_blocks(step, index, self._info.block_size):
                low, high = self._slots(block)
                for slot in range(low, high):
                    self._states[slot] ^= 0x5555

    def _read(self, step: Step, row: int) -> tuple["array[int]", "array[int]"]:
        """Return tokens and states that output row `row` attends to, itself included."""
        index = next(i for i in range(len(step.context_lens)) if row < step.sequence_starts[i + 1])
        table = step.block_table[step.block_table_starts[index] : step.block_table_starts[index + 1]]
        length = step.positions[row] + 1
        tokens, states = array("i"), array("Q")
        for block in table[: -(-length // self._info.block_size)]:
            low, high = self._slots(block)
            tokens.extend(self._tokens[low:high])
            states.extend(self._states[low:high])
        return tokens[:length], states[:length]

    def _draw(self, step: Step) -> StepResult:
        tokens: list[int] = []
        logprobs: list[TokenLogprobs | None] = []
        hidden = b""
        for row, kind in zip(step.output_rows, step.output_kinds, strict=True):
            context, states = self._read(step, row)
            digest = blake2b(context.tobytes() + states.tobytes()).digest()
            if kind == OutputKind.HIDDEN:
                hidden += array("f", [byte / 256 for byte in digest[:HIDDEN_SIZE]]).tobytes()
                continue
            assert step.sampling is not None  # checked by check_step
            token, logprob = self._sample(step.sampling, len(tokens), context, digest)
            tokens.append(token)
            logprobs.append(logprob)
        if all(logprob is None for logprob in logprobs):
            logprobs = []
        return StepResult(tokens=tokens, logprobs=logprobs, hidden=hidden)

    def _sample(
        self, batch: SamplingBatch, index: int, context: "array[int]", digest: bytes
    ) -> tuple[int, TokenLogprobs | None]:
        vocab_size = self._info.vocab_size
        scripted = None
        if self._script is not None:
            scripted = self._script(
                DrawnRow(
                    tokens=tuple(context),
                    choice=batch.choices[index],
                    position=batch.positions[index],
                    seed=batch.seeds[index],
                )
            )
        if scripted is None:
            allowed = _allowed(batch, index, vocab_size)
            number = int.from_bytes(blake2b(_key(batch, index, digest), digest_size=8).digest(), "little")
            if allowed == []:
                return -1, None
            token = allowed[number % len(allowed)] if allowed is not None else number % vocab_size
        else:
            token = scripted
        num_logprobs = batch.num_logprobs[index]
        if num_logprobs < 0:
            return token, None
        logprob = -1.0 - digest[0] / 256
        top = [(token, logprob), *(((token + k) % vocab_size, logprob - k) for k in range(1, num_logprobs))]
        return token, TokenLogprobs(token, logprob, tuple(top[:num_logprobs]))


def _mix(state: int, token: int, position: int) -> int:
    """Return the state after `token`: a 64-bit multiply and xor-shift (constants of SplitMix64)."""
    mixed = (state ^ (token << 20) ^ position) * 0xBF58476D1CE4E5B9 & 0xFFFF_FFFF_FFFF_FFFF
    return (mixed ^ (mixed >> 27)) + 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF


def _key(batch: SamplingBatch, index: int, digest: bytes) -> bytes:
    """Return the bytes that decide row `index`: its context, and whatever else its parameters let count."""
    key = digest
    if batch.temperature[index] > 0 and batch.top_k[index] != 1:
        key += b"sampled" + array("Q", [batch.seeds[index]]).tobytes()
        key += array("i", [batch.choices[index], batch.positions[index], batch.top_k[index]]).tobytes()
        key += array("f", [batch.temperature[index], batch.top_p[index], batch.min_p[index]]).tobytes()
    history = batch.history[batch.history_starts[index] : batch.history_starts[index + 1]]
    if history:
        penalties = (
            batch.repetition_penalty[index],
            batch.presence_penalty[index],
            batch.frequency_penalty[index],
        )
        num_prompt = batch.history_prompt_lens[index]
        # The repetition penalty counts all tokens; the other two only those generated.
        counted = history if batch.repetition_penalty[index] != 1 else history[num_prompt:]
        key += b"penalised" + array("f", penalties).tobytes() + array("i", sorted(counted)).tobytes()
        key += array("i", sorted(history[num_prompt:])).tobytes()
    return key


def _allowed(batch: SamplingBatch, index: int, vocab_size: int) -> list[int] | None:
    """Return the token ids that mask and bias leave, or None when they leave all."""
    biases = range(batch.bias_starts[index], batch.bias_starts[index + 1])
    forced = [batch.bias_ids[i] for i in biases if batch.bias_values[i] >= FORCING_BIAS]
    banned = {batch.bias_ids[i] for i in biases if batch.bias_values[i] <= -FORCING_BIAS}
    mask_row = batch.mask_rows[index]
    if mask_row < 0:
        if not forced and not banned:
            return None
        return forced or [token for token in range(vocab_size) if token not in banned]
    words = -(-vocab_size // 32)
    mask = batch.masks[mask_row * words : (mask_row + 1) * words]
    allowed = [token for token in range(vocab_size) if mask[token // 32] >> (token % 32) & 1]
    return [t for t in forced if t in allowed] or [t for t in allowed if t not in banned]
