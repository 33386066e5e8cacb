"""A block outside the pool: what a file holds is believed only whole, unchanged, and of this model."""

import pytest

from headway.kv.stored_block import BadBlock, Wanted, decode, encode, store

BLOCK = store(b"digest", b"('', 0)", b"tokens..", b"keys and values")
IDENTITY = b"fingerprint 16"


def test_a_file_gives_back_what_was_stored() -> None:
    assert decode(encode(BLOCK, IDENTITY), b"digest", IDENTITY) == BLOCK


def test_any_flipped_byte_is_noticed() -> None:
    content = encode(BLOCK, IDENTITY)
    for index in range(len(content)):
        torn = bytearray(content)
        torn[index] ^= 0x10
        with pytest.raises(BadBlock):
            decode(bytes(torn), b"digest", IDENTITY)


def test_any_torn_file_is_noticed() -> None:
    content = encode(BLOCK, IDENTITY)
    for length in range(len(content)):
        with pytest.raises(BadBlock):
            decode(content[:length], b"digest", IDENTITY)
    with pytest.raises(BadBlock):
        decode(content + b"\0", b"digest", IDENTITY)


@pytest.mark.parametrize("identity", [b"another 16", b"fingerprint 1", b"fingerprint 16\n('', 0)", b""])
def test_another_models_block_is_refused(identity: bytes) -> None:
    with pytest.raises(BadBlock, match="another model's"):
        decode(encode(BLOCK, IDENTITY), b"digest", identity)


@pytest.mark.parametrize(
    ("root", "tokens", "num_bytes", "answers"),
    [
        (b"('', 0)", b"tokens..and more", 8, True),
        (b"('', 0)", b"tokens.,and more", 8, False),
        (b"('', 0)", b"tokens..and more", 16, False),
        (b"('', 0)", b"tokens..and more", 4, False),
        (b"('other', 0)", b"tokens..", 8, False),
    ],
)
def test_a_digest_proves_nothing(root: bytes, tokens: bytes, num_bytes: int, answers: bool) -> None:
    assert BLOCK.answers(Wanted(b"digest", root, tokens, num_bytes)) == answers
