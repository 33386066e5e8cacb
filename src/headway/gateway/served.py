"""What serves one model: its engine, its tokenizer, its chat template. It knows no HTTP."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.errors import InvalidRequest, ModelNotFound
from headway.core.messages import EngineInfo
from headway.core.request import Pooling
from headway.engine.client import EngineClient
from headway.gateway.admission import check_min_length
from headway.gateway.choice_text import ChoiceText
from headway.gateway.tool_parser import ToolParser
from headway.gateway.tool_support import Template, ToolSupport
from headway.models.detokenizer import Detokenizer
from headway.models.stop_strings import StopMatcher, StopStrings
from headway.models.text_side import FimTokens


class Tokenizer(Protocol):
    """Text to token ids and back; called from the tokenising thread and from the event loop at the same time."""

    @property
    def eos_ids(self) -> Collection[int]:
        """Tokens that end an answer."""
        ...

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> Sequence[int]:
        """Return the ids of `text`.

        parse_special   special tokens written in it are recognised
        add_bos         begin and end as the model's files ask for
        """
        ...

    def encode_continuation(self, text: str) -> Sequence[int]:
        """Return the ids of text that goes on from another, special tokens' names spelled out."""
        ...

    def min_num_tokens(self, text: str) -> int:
        """Return a lower bound of the length of `encode(text)`, at once."""
        ...

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of `token_ids`."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is control rather than text."""
        ...


class ChatTemplate(Template, Protocol):
    """Turns a conversation into the text that the model was trained on."""


TextMaker = Callable[[int], ChoiceText]
"""Makes an empty text for a choice, which it numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model under the name that callers use.

    created_s      Unix seconds, for `/v1/models` only
    tool_support   None = it cannot be given tools
    fim            what makes it fill in the middle; None = it cannot
    pooling        how it embeds texts; None = it does not
    """

    name: str
    engine: EngineClient
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    created_s: int
    tool_support: ToolSupport | None = None
    fim: FimTokens | None = None
    pooling: Pooling | None = None

    def text_maker(
        self,
        stop: tuple[str, ...],
        new_tools: Callable[[int], ToolParser] | None = None,
        *,
        tells_ids: bool = False,
    ) -> TextMaker:
        """Return what makes an empty text for each choice of a request, which ends at any string of `stop`.

        new_tools   makes what finds a choice's calls; None = tools are not in play
        tells_ids   whether tokens' ids go with the text
        """
        shown: frozenset[int] = frozenset()
        if self.tool_support is not None and new_tools is not None:
            shown = frozenset(self.tool_support.special_ids.values())
        strings = StopStrings(stop) if stop else None

        def new_text(choice: int) -> ChoiceText:
            matcher = StopMatcher(strings) if strings is not None else None
            tools = new_tools(choice) if new_tools is not None else None
            detokenizer = Detokenizer(self.tokenizer, shown=shown)
            return ChoiceText(choice, detokenizer, matcher, tools, tells_ids=tells_ids)

        return new_text


def find_model(models: Mapping[str, ServedModel], name: str | None) -> ServedModel:
    """Return the model a request names; one that names none gets the only one there is.

    Raises ModelNotFound, or InvalidRequest when there are several and the request names none.
    """
    if name is None:
        if len(models) == 1:
            return next(iter(models.values()))
        raise InvalidRequest(f"`model` is missing; name one of: {', '.join(models)}.", param="model")
    if name not in models:
        raise ModelNotFound(
            f"The model `{name[:100]}` is not served here; the models are: {', '.join(models)}.",
            param="model",
        )
    return models[name]


def encode(
    text: str, tokenizer: Tokenizer, info: EngineInfo, prompt_param: str, *, answered: bool = True
) -> tuple[int, ...]:
    """Return the ids of `text`; raises ContextExceeded, without encoding, when it is certainly too long.

    Raises InvalidRequest when there is none.
    """
    check_min_length(tokenizer.min_num_tokens(text), info.max_context, prompt_param, answered=answered)
    token_ids = tuple(tokenizer.encode(text))
    if not token_ids:
        raise InvalidRequest(f"`{prompt_param}` is empty; send at least one token.", param=prompt_param)
    return token_ids
