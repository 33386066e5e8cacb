"""Reads the keys that JWT are checked with: a JWK set, a public key in PEM, or a secret. Needs the extra `gateway`.

A key serves only the algorithms that fit its kind and that are configured, so no JWT chooses how it is checked (RFC 8725,
3.1).
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from headway.access.config import JwtConfig
from headway.access.server_key import open_now, read_private
from headway.core.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTable:
    """Which key checks which JWT.

    by_id    by key id and algorithm
    only     by algorithm, where there is but one
    has_ids  whether the id that a JWT names counts: a file of one key says nothing of it
    """

    by_id: Mapping[tuple[str, str], PyJWK]
    only: Mapping[str, PyJWK]
    has_ids: bool

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key for a JWT's header, None if there is none, or no saying which."""
        if key_id is None or not self.has_ids:
            return self.only.get(algorithm)
        return self.by_id.get((key_id, algorithm))


def read_keys(config: JwtConfig) -> KeyTable:
    """Return the keys of the configured file; raises ConfigError that names the setting."""
    if config.secret_file is not None:
        name, jwks = "secret_file", [_of_secret(Path(config.secret_file))]
    elif config.pem_file is not None:
        name, jwks = "pem_file", [_of_pem(Path(config.pem_file))]
    else:
        name, jwks = "jwks_file", list(_of_set(Path(config.jwks_file or "")))
    by_id: dict[tuple[str, str], PyJWK] = {}
    by_algorithm: dict[str, list[PyJWK]] = {}
    for jwk in jwks:
        for algorithm in config.algorithms:
            key = _key(jwk, algorithm) if _fits(jwk, algorithm) else None
            if key is None:
                continue
            if (weak := key.Algorithm.check_key_length(key.key)) is not None:
                raise ConfigError(f"`jwt.{name}`: {weak}")
            by_algorithm.setdefault(algorithm, []).append(key)
            if isinstance(key_id := jwk.get("kid"), str):
                if (key_id, algorithm) in by_id:
                    raise ConfigError(f"`jwt.{name}`: two keys for {algorithm} have one id.")
                by_id[key_id, algorithm] = key
    if not by_algorithm:
        raise ConfigError(f"`jwt.{name}`: it holds no key for {', '.join(config.algorithms)}.")
    only = {algorithm: keys[0] for algorithm, keys in by_algorithm.items() if len(keys) == 1}
    return KeyTable(by_id=by_id, only=only, has_ids=name == "jwks_file")


def _fits(jwk: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key may check this algorithm's signatures (RFC 7518, 3.1 and 6; RFC 7517, 4.2 to 4.4)."""
    operations = jwk.get("key_ops")
    if jwk.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return False
    if jwk.get("alg", algorithm) != algorithm:
        return False
    match algorithm[:2]:
        case "RS" | "PS":
            return jwk.get("kty") == "RSA"
        case "ES":
            return jwk.get("kty") == "EC" and jwk.get("crv") == _CURVES[algorithm]
        case "Ed":
            return jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519"
        case _:
            return jwk.get("kty") == "oct"


def _key(jwk: dict[str, Any], algorithm: str) -> PyJWK | None:
    """Return a key that can be used; None for one that is malformed, as RFC 7517, 5 has such ones passed over."""
    try:
        return PyJWK(jwk, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None


def _of_set(path: Path) -> Iterator[dict[str, Any]]:
    try:
        found = json.loads(_read(path, "jwks_file"))
    except (ValueError, RecursionError):
        raise ConfigError(f"`jwt.jwks_file`: {path} is no JSON.") from None
    jwks = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(jwks, list) or len(jwks) > MAX_KEYS:
        raise ConfigError(f"`jwt.jwks_file`: {path} is no JWK set of up to {MAX_KEYS} keys.")
    for jwk in jwks:
        if not isinstance(jwk, dict):
            continue
        if jwk.get("kty") == "oct" or "d" in jwk:
            raise ConfigError(f"`jwt.jwks_file`: {path} holds a secret; it must hold public keys only.")
        yield jwk


def _of_pem(path: Path) -> dict[str, Any]:
    data = _read(path, "pem_file")
    if b"PRIVATE KEY" in data:
        raise ConfigError(f"`jwt.pem_file`: {path} holds a private key; it must hold the public one.")
    try:
        key = load_pem_public_key(data)
    except Exception:  # what cryptography raises depends on what is wrong
        raise ConfigError(f"`jwt.pem_file`: {path} holds no public key in PEM.") from None
    match key:
        case RSAPublicKey():
            return RSAAlgorithm.to_jwk(key, as_dict=True)
        case EllipticCurvePublicKey():
            return ECAlgorithm.to_jwk(key, as_dict=True)
        case Ed25519PublicKey():
            return OKPAlgorithm.to_jwk(key, as_dict=True)
        case _:
            raise ConfigError(f"`jwt.pem_file`: {path} holds a kind of key that signs no JWT.")


def _of_secret(path: Path) -> dict[str, Any]:
    secret = read_private(path, "`jwt.secret_file`:").strip()
    return {"kty": "oct", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode()}


def _read(path: Path, name: str) -> bytes:
    try:
        with open_now(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"`jwt.{name}`: {path} cannot be read: {error.strerror or error}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"`jwt.{name}`: {path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
    return data
