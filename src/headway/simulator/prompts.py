"""Token ids of simulated prompts: prefix caching works on ids, so equal beginnings must have equal ids.

With a model's own tokenizer and chat template they are what a server would compute on. Of a shape alone, which has neither,
every few characters become an id made of them: as many ids as the text has tokens by estimate, and alike where it is.
A later turn is the prompt before, the answer's own tokens, and what the user says then; a template that rewrites what was
said before, such as one that drops reasoning, is not followed in that.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from headway.core.errors import ConfigError
from headway.lab.token_estimate import CHARS_PER_TOKEN
from headway.lab.workload import Message, WorkloadRequest
from headway.models.text_side import TextSide

ANSWER = "<simulated answer>"
"""Stands for an answer in the messages of a later turn; its tokens are known, its text is not."""

Tokens = tuple[int, ...]

_MESSAGE_TOKENS = 5
"""What templates put around a message: ChatML's `<|im_start|>user` and its like, with line breaks, are 5 tokens."""
_WEIGHTS = (1, 31, 31**2 % 65_521, 31**3 % 65_521)
_MULTIPLIER = 2_654_435_761  # Knuth's multiplicative hash: spreads neighbours over the vocabulary


class PromptMaker(Protocol):
    """Makes ids of what the lab sends."""

    def first(self, request: WorkloadRequest) -> Tokens:
        """Return the prompt of a conversation's first turn."""
        ...

    def following(self, request: WorkloadRequest, before: Tokens, answer: Sequence[int]) -> Tokens:
        """Return the prompt of a later turn: `before` is the prompt of the turn before, `answer` what came of it."""
        ...


class TokenizedPrompts:
    """A `PromptMaker` by a model's own tokenizer and chat template."""

    def __init__(self, text: TextSide) -> None:
        """Raises ConfigError for a model without a chat template."""
        if text.chat_template is None:
            raise ConfigError("This model has no chat template, which the lab's conversations need.")
        self._template = text.chat_template
        self._tokenizer = text.tokenizer

    def first(self, request: WorkloadRequest) -> Tokens:
        """See PromptMaker."""
        return tuple(self._tokenizer.encode(self._render(request)))

    def following(self, request: WorkloadRequest, before: Tokens, answer: Sequence[int]) -> Tokens:
        """See PromptMaker. Where the template does not repeat the answer, nothing is known of the prompt before."""
        _, found, behind = self._render(request).rpartition(ANSWER)
        if not found:
            return self.first(request)
        return (*before, *answer, *self._tokenizer.encode(behind, add_bos=False))

    def _render(self, request: WorkloadRequest) -> str:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        return self._template.render(messages)


class EstimatedPrompts:
    """A `PromptMaker` for a shape: `vocab_size` ids, `chars_per_token` characters each."""

    def __init__(self, vocab_size: int, chars_per_token: float = CHARS_PER_TOKEN) -> None:
        """Makes no ids yet."""
        self._vocab_size = vocab_size
        self._chars_per_token = chars_per_token

    def first(self, request: WorkloadRequest) -> Tokens:
        """See PromptMaker."""
        return tuple(token for message in request.messages for token in self._message(message))

    def following(self, request: WorkloadRequest, before: Tokens, answer: Sequence[int]) -> Tokens:
        """See PromptMaker."""
        return (*before, *answer, *self._message(request.messages[-1]))

    def _message(self, message: Message) -> list[int]:
        return self._ids(message.role.ljust(_MESSAGE_TOKENS), 1.0)[:_MESSAGE_TOKENS] + self._ids(
            message.content, self._chars_per_token
        )

    def _ids(self, text: str, chars_per_token: float) -> list[int]:
        """Return an id for each `chars_per_token` characters, made of up to four of them."""
        num_tokens = -int(-len(text) // chars_per_token)
        codes = np.frombuffer(text.encode("latin-1", "replace") + bytes(len(_WEIGHTS)), dtype=np.uint8)
        starts = (np.arange(num_tokens) * chars_per_token).astype(np.int64)
        mixed = sum(codes[starts + i].astype(np.uint64) * weight for i, weight in enumerate(_WEIGHTS))
        ids: list[int] = (np.asarray(mixed) * _MULTIPLIER % 2**32 % self._vocab_size).tolist()
        return ids
