"""The small files of a Hugging Face folder that concern text, read without trusting them.

Missing files are normal: what they would say is then not said. A file that is there but malformed is the folder's fault.
It knows no tokenizer and no template language.
"""

from functools import cached_property
from pathlib import Path

from headway.core.errors import ModelFileError
from headway.models.model_folder import read_inside
from headway.models.strict_json import decode_json_object

MAX_CONFIG_BYTES = 16 * 1024 * 1024
"""Ten times the largest `tokenizer_config.json` published (Gemma 3: 1.2 MB, with all its added tokens)."""
MAX_TEMPLATE_BYTES = 1024 * 1024
"""Room for as many characters as a template may have, of four bytes each."""


class HfTextFiles:
    """Those of one folder. Every property raises ModelFileError when its file is malformed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, name: str) -> bool:
        """Return whether there is something of this name."""
        return (self.path / name).exists()

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Return a file's content, None if there is none; raises ModelFileError if it is too large or leads elsewhere."""
        return read_inside(self.path, name, max_bytes=max_bytes) if self.has(name) else None

    def json(self, name: str) -> dict[str, object]:
        """Return the object in a JSON file, empty if there is no such file."""
        data = self.read(name, MAX_CONFIG_BYTES)
        return {} if data is None else decode_json_object(data, str(self.path / name))

    @cached_property
    def tokenizer(self) -> dict[str, object]:
        """`tokenizer_config.json`."""
        return self.json("tokenizer_config.json")

    @cached_property
    def config(self) -> dict[str, object]:
        """The part of `config.json` that is about the language model."""
        config = self.json("config.json")
        text = config.get("text_config")  # of models that see or hear as well
        return config | text if isinstance(text, dict) else config

    @property
    def vocab_size(self) -> int | None:
        """How many rows the model's vocabulary has."""
        size = self.config.get("vocab_size")
        return size if isinstance(size, int) and size > 0 else None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer, by the configurations of the model and of its generation."""
        generation = self.json("generation_config.json")
        return ids_of(generation.get("eos_token_id")) | ids_of(self.config.get("eos_token_id"))

    def special_token(self, role: str) -> str | None:
        """Return the text of the token with a role ("bos_token")."""
        for source in (self.tokenizer, self.json("special_tokens_map.json")):
            content = token_content(source.get(role))
            if content is not None:
                return content
        return None

    @property
    def chat_template(self) -> str | None:
        """The template's text: a file of its own, or that of the name "default" in the tokenizer's configuration."""
        data = self.read("chat_template.jinja", MAX_TEMPLATE_BYTES)
        if data is not None:
            try:
                return data.decode()
            except UnicodeDecodeError:
                raise ModelFileError(f"{self.path / 'chat_template.jinja'}: is not valid UTF-8.") from None
        template = self.tokenizer.get("chat_template", self.json("chat_template.json").get("chat_template"))
        if isinstance(template, list):
            named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
            template = named.get("default")
        if template is None or isinstance(template, str):
            return template or None
        raise ModelFileError(f"{self.path}: the chat template in tokenizer_config.json is not a string.")


def token_content(value: object) -> str | None:
    """Return a token's text, which configurations give as a string or as an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def ids_of(value: object) -> frozenset[int]:
    """Return token ids that configurations give as a number or a list."""
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if type(item) is int and item >= 0)
