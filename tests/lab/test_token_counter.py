"""Tokens of answers without usage, by the model's own tokenizer."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from headway.core.errors import ConfigError
from headway.lab.client import Client
from headway.lab.drive import Driver
from headway.lab.summary import summarise
from headway.lab.token_counter import token_counter
from lab.test_drive import answering, body, stream, talks

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_tokens_are_counted_as_the_model_counts_them(path: Path) -> None:
    count = token_counter(path)
    assert [count(text) for text in ("a", "a b a", "", "what?")] == [1, 3, 0, 2]


async def test_an_answer_without_usage_is_counted(path: Path) -> None:
    async def answer(writer: object, _: object) -> None:
        writer.write(stream("a b", " a", " b a b"))  # type: ignore[attr-defined]

    async with answering(answer) as target:
        with Client(target, count_tokens=token_counter(path)) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(), num_conversations=2)
    found = summarise(driver.offered.exchanges)
    assert found.token_source == "tokenizer"
    assert found.output_tokens == 12


def test_what_is_no_tokenizer_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for name in ("x.json", "nothing.json"):
        with pytest.raises(ConfigError, match="is no tokenizer"):
            token_counter(tmp_path / name)
