"""Settings of who may call: the tables `[tokens]` and `[jwt]` of the file that `--access` names.

    [tokens]
    store = "redis://10.0.0.5/0"

    [jwt]
    issuer = "https://id.example.org"
    audience = "headway"
    jwks_file = "jwks.json"

What a table does not know is an error that names the key. Paths are relative to the file's folder.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from headway.access.stored_token import check_limits, check_name
from headway.core.caller import CallerLimits, Kind
from headway.core.errors import ConfigError
from headway.core.request import ServiceClass

T = TypeVar("T")

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "HS256",
    "HS384",
    "HS512",
]
"""What may sign a JWT (RFC 7518, 3.1; RFC 8037). `none` is not among them."""

ClaimPath = str | tuple[str, ...]
"""A claim's name, or the names that lead to it from the outermost."""

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
_MAX_FILE_BYTES: Final = 1 << 20


class TokensConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """API tokens."""

    store: _Text | None = None
    """A path, or the URL of a Redis; None = in the state folder."""
    key_file: _Text | None = None
    """None = beside the store, made on first use."""
    cache_s: _Seconds = 5.0
    """How long an answer of the store counts: a revoked token works no longer than that."""
    outage_s: _Seconds = 600.0
    """How long callers that are known go on while the store fails."""
    timeout_s: _Seconds = 0.5
    """How long the store may take to answer."""


class ClaimsConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """Which claims say what; None = none does, and the default counts."""

    user: ClaimPath = "sub"
    tenant: ClaimPath | None = None
    class_: ClaimPath | None = None
    kind: ClaimPath | None = None
    requests_per_s: ClaimPath | None = None
    tokens_per_min: ClaimPath | None = None
    max_concurrent: ClaimPath | None = None


class DefaultsConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """What counts where a JWT does not have the claim."""

    tenant: str = ""
    class_: ServiceClass = "normal"
    kind: Kind = "user"
    requests_per_s: float | None = None
    tokens_per_min: int | None = None
    max_concurrent: int | None = None


class JwtConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JWT of one issuer (RFC 7519)."""

    issuer: _Text
    audience: _Text | Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    algorithms: Annotated[tuple[Algorithm, ...], msgspec.Meta(min_length=1)] = ("RS256",)
    jwks_file: _Text | None = None
    """Public keys as a JWK set (RFC 7517, 5)."""
    pem_file: _Text | None = None
    """One public key."""
    secret_file: _Text | None = None
    """A shared secret, for HS256, HS384 and HS512."""
    key_file: _Text | None = None
    """The server's key, for callers' public names, where there is no [tokens] to say; None = the state folder's."""
    leeway_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 30.0
    """How far clocks may differ."""
    claims: ClaimsConfig = ClaimsConfig()
    defaults: DefaultsConfig = DefaultsConfig()
    classes: dict[str, ServiceClass] = {}
    """What a claim's value means, where it is none of high, normal and low."""
    kinds: dict[str, Kind] = {}
    """The same of the kind, where it is none of admin, user and service."""


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may call; None = not in this way."""

    tokens: TokensConfig | None = None
    jwt: JwtConfig | None = None


def parse_access(table: Mapping[str, object], folder: Path = Path()) -> AccessConfig:
    """Read the tables; `folder` is where relative paths begin. Raises ConfigError that names the key, as `jwt.issuer`."""
    config = _convert(table, AccessConfig)
    jwt, tokens = config.jwt, config.tokens
    if jwt is not None:
        _check_jwt(jwt)
        if tokens is not None and jwt.key_file is not None:
            raise ConfigError("`jwt.key_file` has no use beside [tokens]: its key serves both.")
        jwt = _placed(jwt, folder, "jwks_file", "pem_file", "secret_file", "key_file")
    if tokens is not None:
        tokens = _placed(tokens, folder, "key_file", *(() if "://" in (tokens.store or "") else ("store",)))
    return AccessConfig(tokens=tokens, jwt=jwt)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises ConfigError for one that cannot be read, or is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB.")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # of TOML, and of UTF-8
        raise ConfigError(f"{path} is not TOML: {error}.") from error


def _check_jwt(jwt: JwtConfig) -> None:
    files = [name for name in ("jwks_file", "pem_file", "secret_file") if getattr(jwt, name) is not None]
    if len(files) != 1:
        raise ConfigError(
            "[jwt] needs one of `jwt.jwks_file`, `jwt.pem_file` and `jwt.secret_file`; it has "
            f"{' and '.join(files) or 'none'}."
        )
    shared = [algorithm for algorithm in jwt.algorithms if algorithm.startswith("HS")]
    if shared and len(shared) != len(jwt.algorithms):
        # The public key would do as the secret (RFC 8725, 2.1).
        raise ConfigError("`jwt.algorithms` must not mix HS… with algorithms that have public keys.")
    defaults = jwt.defaults
    try:
        check_name("tenant", defaults.tenant, may_be_empty=True)
        check_limits(
            CallerLimits(
                requests_per_s=defaults.requests_per_s,
                tokens_per_min=defaults.tokens_per_min,
                max_concurrent=defaults.max_concurrent,
            )
        )
    except ConfigError as error:
        raise ConfigError(f"[jwt.defaults]: {error.message}") from None
    if bool(shared) != (files == ["secret_file"]):
        raise ConfigError(
            f"`jwt.algorithms` and `jwt.{files[0]}` do not go together: HS… has a secret, others have keys."
        )


def _convert(table: Mapping[str, object], type_: type[T]) -> T:
    try:
        return msgspec.convert(table, type_)
    except msgspec.ValidationError as error:
        raise ConfigError(_told(str(error))) from None


def _told(problem: str) -> str:
    """Say what msgspec found, with the key first: "Object contains unknown field `x` - at `$.jwt`"."""
    what, _, path = problem.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    unknown, missing = "Object contains unknown field `", "Object missing required field `"
    for begin in (unknown, missing):
        if what.startswith(begin):
            name = what.removeprefix(begin).rstrip("`")
            key = f"`{where}.{name}`" if where else f"`{name}`"
            known = ", ".join(_TABLES[where].__struct_encode_fields__)
            return f"{key} is no setting; there are {known}." if begin == unknown else f"{key} is missing."
    return f"`{where}`: {what.replace(' | null', '')}." if where else f"{what}."


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "": AccessConfig,
    "tokens": TokensConfig,
    "jwt": JwtConfig,
    "jwt.claims": ClaimsConfig,
    "jwt.defaults": DefaultsConfig,
}


def _placed(config: Any, folder: Path, *names: str) -> Any:
    """Return a table with its paths made relative to a folder."""
    found = {name: value for name in names if (value := getattr(config, name)) is not None}
    placed = {name: str(folder / Path(value).expanduser()) for name, value in found.items()}
    return msgspec.structs.replace(config, **placed)
