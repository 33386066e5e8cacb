"""An issuer of JWT for tests: its keys, the files that a server checks them with, and what it signs."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headway.core.secret import Secret

ISSUER = "https://id.example"
NOW_S = 1_800_000_000
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": "headway", "sub": "ada|1", "exp": NOW_S + 60}


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key; the same one for the same number."""
    del number
    return rsa.generate_private_key(65_537, bits)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """Return a key on P-256; the same one for the same number."""
    del number
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    """Return a key on Ed25519."""
    return ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, **fields: str) -> dict[str, Any]:
    """Return the public half of a key as a JWK."""
    match key:
        case rsa.RSAPrivateKey():
            found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            found = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {name: value for name, value in found.items() if name != "key_ops"} | fields


def write_jwks(path: Path, *keys: dict[str, Any]) -> str:
    """Write a JWK set; return its path."""
    path.write_text(json.dumps({"keys": keys}))
    return str(path)


def public_pem(key: Any) -> bytes:
    """Return the public half of a key in PEM."""
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def private_pem(key: Any) -> bytes:
    """Return a key in PEM."""
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def signed(key: Any, algorithm: str, headers: dict[str, Any] | None = None, **claims: Any) -> Secret:
    """Return a JWT of `CLAIMS`, changed by `claims`: None leaves one out."""
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return Secret(jwt.encode(merged, key, algorithm, headers=headers))
