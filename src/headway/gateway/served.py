"""What serves one model: its engine, its tokenizer, its chat template. It knows no HTTP."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.errors import InvalidRequest, ModelNotFound
from headway.engine.client import EngineClient
from headway.gateway.choice_text import ChoiceText, Detokenizer, StopMatcher


class Tokenizer(Protocol):
    """Text to token ids and back; called from the tokenising thread and from the event loop at the same time."""

    @property
    def eos_ids(self) -> Sequence[int]:
        """Tokens that end an answer."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of `text`; special tokens written in it are recognised."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for."""
        ...


class ChatTemplate(Protocol):
    """Turns a conversation into the text that the model was trained on."""

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the prompt, ending where the assistant's answer begins; raises InvalidRequest."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model under the name that callers use. `created_s`: Unix seconds, for `/v1/models` only."""

    name: str
    engine: EngineClient
    tokenizer: Tokenizer
    new_detokenizer: Callable[[], Detokenizer]
    new_stop_matcher: Callable[[tuple[str, ...]], StopMatcher]
    chat_template: ChatTemplate | None
    created_s: int

    def new_text(self, stop: tuple[str, ...], choice: int) -> ChoiceText:
        """Return an empty text for one choice, which ends at any string of `stop`."""
        return ChoiceText(choice, self.new_detokenizer(), self.new_stop_matcher(stop) if stop else None)


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
