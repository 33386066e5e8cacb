"""What an endpoint's list of models says: which there is, and how many tokens its context takes."""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.side_request import ask, body_of

ROUTE = "/models"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model to ask. `max_context_tokens`: of prompt and answer together; None = the endpoint does not say."""

    name: str
    max_context_tokens: int | None = None


async def first_model(endpoint: Endpoint, limit_s: float) -> ServedModel:
    """Return the first model that an endpoint lists; raises ConfigError, saying what it answers, if that fails."""
    where = f"{endpoint.authority}{endpoint.path}{ROUTE}"
    try:
        response = await ask(endpoint, endpoint.get(ROUTE), limit_s)
    except TimeoutError as error:
        raise ConfigError(f"{where} does not answer within {limit_s:g} s.") from error
    except OSError as error:
        raise ConfigError(f"No connection to {endpoint.authority}: {error}.") from error
    if response.end != "complete" or response.status != HTTPStatus.OK:
        told = f"status {response.status}" if response.status else f"nothing ({response.end})"
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConfigError(f"{where} answers {told}; --api-key-env names the variable that holds a key.")
        raise ConfigError(
            f"{where} answers {told}; is the URL that of an OpenAI-compatible API? Else give --model."
        )
    listed = _listed(bytes(response.body))
    if listed is None:
        raise ConfigError(f"{where} answers something else than a list of models; give --model.")
    if not listed:
        raise ConfigError(f"{where} lists no model; give --model.")
    return listed[0].served()


async def named_model(endpoint: Endpoint, name: str) -> ServedModel:
    """Return the model of a name, with its context's length if the endpoint lists it; asks shortly and never fails."""
    body = await body_of(endpoint, endpoint.get(ROUTE))
    for model in (body is not None and _listed(body)) or []:
        if name == model.id or name in (model.aliases or ()):
            return ServedModel(name=name, max_context_tokens=model.max_context_tokens)
    return ServedModel(name=name)


class _Meta(msgspec.Struct):
    """llama-server's: `n_ctx` is what a request may take as the server was started, `n_ctx_train` what the model could."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None


class _Model(msgspec.Struct):
    id: str
    aliases: list[str] | None = None
    """llama-server's."""
    max_model_len: int | None = None
    """vLLM's and Headway's."""
    meta: _Meta | None = None

    @property
    def max_context_tokens(self) -> int | None:
        meta = self.meta or _Meta()
        return self.max_model_len or meta.n_ctx or meta.n_ctx_train or None

    def served(self) -> ServedModel:
        return ServedModel(name=self.id, max_context_tokens=self.max_context_tokens)


class _Models(msgspec.Struct):
    data: list[_Model]


class _Name(msgspec.Struct):
    id: str


class _Names(msgspec.Struct):
    data: list[_Name]


def _listed(body: bytes) -> list[_Model] | None:
    """Read a list; of one whose extra fields are not as we know them the names alone. None: it is no list of models."""
    try:
        return msgspec.json.decode(body, type=_Models).data
    except msgspec.MsgspecError:
        pass
    try:
        return [_Model(name.id) for name in msgspec.json.decode(body, type=_Names).data]
    except msgspec.MsgspecError:
        return None
