"""Text to token ids and back. The merging is done by the `tokenizers` package; here are the choices around it.

It knows no file format (`gguf_tokenizer` and `hf_tokenizer` read them) and no chat.

Two properties the gateway stands on, measured with tokenizers 0.23 (tests/models/test_tokenizer.py repeats the first):

- `encode` runs on a worker thread while another thread streams. `tokenizers.Tokenizer.encode` keeps the interpreter
  lock for the whole call (1.5 s for 2 MiB of source); `encode_batch_fast` lets go of it, except while ids become
  Python integers. So long text is cut into pieces (`text_split`) and each is encoded by `encode_batch_fast`.
- Text is cut only where merging has a boundary anyway, so the ids are those of the whole text.

Spaces. SentencePiece puts a space before a text, so that its first word is the token of any word, and takes it away from
the text of all tokens. `decode` does so. `token_bytes` does not, nor what is built on it: an answer continues its
prompt, so the space of its first token belongs to it: text(prompt + answer) = text(prompt) + text(answer). llama.cpp's
server does the same.
"""

import os
from collections.abc import Iterable
from functools import cached_property

from tokenizers import Tokenizer as Pipeline

from headway.core.errors import InvalidRequest
from headway.models.tokenizer_parts import TokenizerParts


class Tokenizer:
    """One model's tokenizer. Immutable; every method may be called from any thread.

    bos_id   the token that begins a text, None if the files name none
    eos_ids  every token that ends an answer, ascending
    """

    bos_id: int | None
    eos_ids: tuple[int, ...]

    def __init__(self, parts: TokenizerParts) -> None:
        # One text never gains from the package's thread pool, and its threads would take cores from the engine.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._parts = parts
        self.bos_id = parts.bos_id
        self.eos_ids = tuple(sorted(parts.eos_ids))

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return len(self._parts.tokens)

    def is_special(self, token_id: int) -> bool:
        """Whether a token is control rather than text: it is left out of an answer."""
        return token_id in self._parts.special

    def encode(
        self,
        text: str,
        *,
        parse_special: bool = True,
        add_bos: bool = True,
        max_tokens: int | None = None,
    ) -> list[int]:
        """Return the ids of `text`, in time linear in its length, without holding the interpreter lock for long.

        parse_special  the strings of special tokens in `text` become those tokens. As llama-server and vLLM do, this
                       is on for raw prompts (fill-in-the-middle needs it) and rendered chats, where it includes the
                       messages' own text: whoever writes a message can write `<|im_start|>`. The model is no boundary
                       of trust. False: such strings are spelled out in ordinary tokens.
        add_bos        begin with `bos_id` if the files ask for it and the text does not already, and end as they ask
        max_tokens     stop early once there are more ids than this: the result is then longer than `max_tokens`, but not
                       the whole text. For who refuses such a prompt anyway.

        Raises InvalidRequest for text that is not Unicode (lone surrogates), or that has a token the model lacks.
        """
        _check_unicode(text)
        parts = self._parts
        pipeline, splitter = (
            (parts.parsing, parts.splitter) if parse_special else (self._plain, parts.plain_splitter)
        )
        prefix = list(parts.prefix)
        ids = list(prefix) if add_bos else []
        for piece in splitter.split(text):
            ids += pipeline.encode_batch_fast([piece], add_special_tokens=False)[0].ids
            if max_tokens is not None and len(ids) > max_tokens:
                return ids
        self._check_usable(ids)
        if add_bos:
            if prefix and ids[: 2 * len(prefix)] == prefix * 2:  # the text brought its own
                del ids[: len(prefix)]
            ids += parts.suffix
        return ids

    @property
    def can_continue(self) -> bool:
        """Whether `encode_continuation` may be called: not where text is changed in ways that we do not know."""
        return self._parts.continuing is not None or not self._parts.space_prefix

    def encode_continuation(self, text: str) -> list[int]:
        """Return the ids of text that goes on from another: nothing in front, special tokens' names spelled out.

        What SentencePiece would put in front, a space, belongs to the beginning of a text only (CodeLlama's suffixes).
        The text is encoded in one piece. Raises InvalidRequest as `encode` does.
        """
        _check_unicode(text)
        ids: list[int] = self._continuing.encode_batch_fast([text], add_special_tokens=False)[0].ids
        self._check_usable(ids)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes one token stands for, which need not be whole characters. A special token gives its name.

        Raises IndexError for an id outside the vocabulary.
        """
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        parts = self._parts
        text = parts.tokens[token_id]
        if token_id in parts.special or token_id in parts.literal:
            return text.encode()
        if token_id in parts.byte_ids:
            return bytes([parts.byte_ids[token_id]])
        return parts.text_bytes(text)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of `token_ids`, which begin a text; bytes that are no UTF-8 become U+FFFD."""
        kept = [i for i in token_ids if not (skip_special and i in self._parts.special)]
        text = b"".join(map(self.token_bytes, kept)).decode(errors="replace")
        first = next((i for i in kept if i not in self._parts.special), None)
        if not self._parts.space_prefix or first is None or not self.token_bytes(first).startswith(b" "):
            return text
        names = "".join(self._parts.tokens[i] for i in kept[: kept.index(first)])
        return names + text[len(names) + 1 :]

    def token_text(self, token_id: int | None) -> str:
        """Return a token as the file writes it (what a template calls `bos_token`); "" for None."""
        return "" if token_id is None else self._parts.tokens[token_id]

    def token_id(self, text: str) -> int | None:
        """Return the token that the file writes as `text`, None if there is none."""
        return self._parts.parsing.token_to_id(text)

    def min_num_tokens(self, text: str) -> int:
        """Return a lower bound of `len(encode(text))` without encoding: who is far too long can be refused at once."""
        longest = self._parts.max_chars_per_token
        return 0 if longest is None else -(-len(text) // longest)

    def _check_usable(self, ids: Iterable[int]) -> None:
        parts = self._parts
        if not parts.unusable.isdisjoint(ids):
            name = parts.tokens[next(index for index in ids if index in parts.unusable)]
            raise InvalidRequest(f"The text has the token {name!r}, which this model does not have.")

    @cached_property
    def _plain(self) -> Pipeline:
        return self._parts.plain()

    @cached_property
    def _continuing(self) -> Pipeline:
        if not self._parts.space_prefix:
            return self._plain
        assert self._parts.continuing is not None, "see can_continue"
        return self._parts.continuing()


def _check_unicode(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"The text has a lone surrogate at character {error.start}; send valid Unicode."
        ) from error
