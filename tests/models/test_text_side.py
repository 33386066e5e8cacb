import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.fetch import resolve_model
from headway.models.text_side import FimTokens, open_text, text_of_metadata
from support.gguf_writer import encode_gguf
from support.tiny_gguf import CHAT_TEMPLATE, tiny_tokenizer

DATA = Path(__file__).parents[1] / "data" / "tokenizers"
USER = [{"role": "user", "content": "Hi"}]


def gguf(path: Path, **changes: Any) -> Path:
    metadata: dict[str, Any] = {"general.architecture": "qwen2", **tiny_tokenizer()}
    for key, value in changes.items():
        metadata[key.replace("__", ".")] = value
    path.write_bytes(encode_gguf(metadata, []))
    return path


def named(tokens: dict[int, str]) -> list[str]:
    names: list[str] = list(tiny_tokenizer()["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    for index, name in tokens.items():
        names[index] = name
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    shutil.copytree(DATA / "hf_qwen2", target)
    return target


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


# GGUF


@pytest.mark.model
def test_the_demo_models_text_side() -> None:
    text = open_text(resolve_model("smollm2"))
    assert text.chat_template is not None
    assert text.chat_template.render(USER).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert text.fim is None  # its vocabulary has no such tokens
    assert text.pooling is None


def test_a_file_has_a_template_and_names_the_tokens_in_it(tmp_path: Path) -> None:
    text = open_text(gguf(tmp_path / "m.gguf"))
    assert text.chat_template is not None
    assert text.chat_template.source == CHAT_TEMPLATE
    template = "{{ bos_token }}|{{ eos_token }}"
    text = open_text(gguf(tmp_path / "m.gguf", tokenizer__chat_template=template))
    assert text.chat_template is not None
    assert text.chat_template.render(USER) == "<|im_start|>|<|im_end|>"


def test_a_file_without_a_template_has_none() -> None:
    without = {"general.architecture": "qwen2", **tiny_tokenizer()}
    without.pop("tokenizer.chat_template")
    assert text_of_metadata(without).chat_template is None
    assert text_of_metadata(without | {"tokenizer.chat_template": ""}).chat_template is None
    with pytest.raises(ModelFileError, match=r"chat_template is not a string"):
        text_of_metadata(without | {"tokenizer.chat_template": 3})


def test_fim_tokens_are_named_by_the_file_or_known_by_name(tmp_path: Path) -> None:
    keys = {f"tokenizer__ggml__fim_{name}_token_id": 300 + n for n, name in enumerate(("pre", "suf", "mid"))}
    assert open_text(gguf(tmp_path / "m.gguf", **keys)).fim == FimTokens(300, 301, 302)
    older = {
        f"tokenizer__ggml__{name}_token_id": 300 + n for n, name in enumerate(("prefix", "suffix", "middle"))
    }
    assert open_text(gguf(tmp_path / "m.gguf", **older)).fim == FimTokens(300, 301, 302)
    assert open_text(gguf(tmp_path / "m.gguf", **dict(list(keys.items())[:2]))).fim is None
    for names in (
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
    ):
        tokens = named({300 + index: name for index, name in enumerate(names)})
        assert open_text(gguf(tmp_path / "m.gguf", tokenizer__ggml__tokens=tokens)).fim == FimTokens(
            300, 301, 302
        )


def test_a_refusal_names_the_file(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "m.gguf"
    for wrong in ({"tokenizer__ggml__pre": "own"}, {"tokenizer__chat_template": "{% if"}):
        with pytest.raises(ModelFileError, match=rf"^{path}: The "):
            open_text(gguf(path, **wrong))
    write(folder, "chat_template.jinja", "{% if")
    with pytest.raises(ModelFileError, match=rf"^{folder}: The "):
        open_text(folder)


def test_pooling_is_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert open_text(gguf(path, qwen2__pooling_type=1)).pooling == "mean"
    assert open_text(gguf(path, qwen2__pooling_type=3)).pooling == "last"
    assert open_text(gguf(path, qwen2__pooling_type=0)).pooling is None
    with pytest.raises(ModelFileError, match="'cls', which is not supported"):
        open_text(gguf(path, qwen2__pooling_type=2))
    with pytest.raises(ModelFileError, match="9, which is not supported"):
        open_text(gguf(path, qwen2__pooling_type=9))


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**40),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-5, 400), max_size=4).map(tuple),
    st.lists(st.text(max_size=3), max_size=400).map(tuple),
    st.lists(st.floats(), max_size=400).map(tuple),
)
_KEYS = [
    *(f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "token_type", "scores", "merges")),
    *(
        f"tokenizer.ggml.{name}_token_id"
        for name in ("bos", "eos", "eot", "unknown", "prefix", "suffix", "middle")
    ),
    *(f"tokenizer.ggml.add_{name}" for name in ("bos_token", "eos_token", "space_prefix")),
    "tokenizer.chat_template",
    "general.name",
    "general.architecture",
    "qwen2.pooling_type",
]


@given(
    changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=3),
    kind=st.sampled_from(["gpt2", "llama"]),
)
def test_whatever_a_file_says_it_is_read_or_refused_in_one_line(changes: dict[str, Any], kind: str) -> None:
    metadata: dict[str, Any] = {
        "general.architecture": "qwen2",
        **tiny_tokenizer(),
        "tokenizer.ggml.model": kind,
    }
    tokens = [*metadata["tokenizer.ggml.tokens"][:-6], *(f"<0x{byte:02X}>" for byte in range(256))]
    if kind == "llama":
        metadata["tokenizer.ggml.tokens"] = tokens
        metadata["tokenizer.ggml.token_type"] = [1] * len(tokens)
        metadata["tokenizer.ggml.scores"] = [-float(index) for index in range(len(tokens))]
    try:
        text = text_of_metadata(metadata | changes)
    except ModelFileError as refusal:
        reason = str(refusal)
    else:
        reason = ""
        text.tokenizer.decode(text.tokenizer.encode("Some text <|im_end|> é"))
    assert len(reason) < 600
    assert "\n" not in reason


# Folders


def test_a_folder_without_anything_else_is_a_tokenizer(folder: Path) -> None:
    text = open_text(folder)
    assert (text.chat_template, text.fim, text.pooling) == (None, None, None)
    assert text.tokenizer.eos_ids == (0, 2)
    assert text.tokenizer.decode(text.tokenizer.encode("e\u0301")) == "\u00e9"


def test_every_file_may_name_the_end(folder: Path) -> None:
    write(folder, "generation_config.json", {"eos_token_id": [5, 7]})
    write(folder, "config.json", {"eos_token_id": 9, "text_config": {"vocab_size": 812}})
    tokenizer = open_text(folder).tokenizer
    assert tokenizer.eos_ids == (0, 2, 5, 7, 9)
    assert tokenizer.vocab_size == 812
    assert tokenizer.token_text(811) == "[PAD811]"
    assert tokenizer.is_special(811)


def test_a_folders_template_is_a_file_or_a_setting(folder: Path) -> None:
    def rendered() -> str:
        template = open_text(folder).chat_template
        assert template is not None
        return template.render(USER)

    settings = {"eos_token": {"content": "<|im_end|>"}, "chat_template": "one {{ eos_token }}"}
    write(folder, "tokenizer_config.json", settings)
    assert rendered() == "one <|im_end|>"
    several = [{"name": "tool_use", "template": "other"}, {"name": "default", "template": "two"}]
    write(folder, "tokenizer_config.json", {"chat_template": several})
    assert rendered() == "two"
    write(folder, "chat_template.jinja", "three")
    assert rendered() == "three"


def test_the_settings_say_what_begins_and_ends_a_text(folder: Path) -> None:
    settings = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "add_bos_token": True,
        "add_eos_token": True,
    }
    write(folder, "tokenizer_config.json", settings)
    tokenizer = open_text(folder).tokenizer
    assert tokenizer.bos_id == 1
    assert tokenizer.encode("<|im_start|>") == [1, 2]
    assert tokenizer.encode("") == [1, 2]
    write(folder, "tokenizer_config.json", {})
    write(folder, "special_tokens_map.json", {"bos_token": {"content": "<|im_start|>"}})
    assert open_text(folder).tokenizer.bos_id == 1


def test_special_tokens_can_be_spelled_out(folder: Path) -> None:
    tokenizer = open_text(folder).tokenizer
    assert tokenizer.encode("<|im_end|>") == [2]
    ids = tokenizer.encode("<|im_end|>", parse_special=False)
    assert len(ids) > 1
    assert tokenizer.decode(ids) == "<|im_end|>"


@pytest.mark.parametrize("name", ["hf_gemma", "hf_llama", "hf_qwen2"])
def test_spelling_special_tokens_out_takes_no_second_vocabulary(name: str) -> None:
    parts = open_text(DATA / name).tokenizer._parts
    plain = parts.plain()
    assert json.loads(plain.to_str()) == json.loads(parts.parsing.to_str())
    parts.parsing.model.fuse_unk = not plain.model.fuse_unk
    assert plain.model.fuse_unk == parts.parsing.model.fuse_unk  # one model, seen through both


def test_text_inside_another_is_encoded_without_a_space() -> None:
    llama = open_text(DATA / "hf_llama").tokenizer
    whole = llama.encode("xa", add_bos=False)
    assert [llama.token_text(index) for index in llama.encode_continuation("xa")] == ["x", "a"]
    assert llama.token_text(whole[0]).startswith("\u2581")
    gemma = open_text(DATA / "hf_gemma").tokenizer
    assert gemma.encode_continuation("x a<eos>") == gemma.encode(
        "x a<eos>", parse_special=False, add_bos=False
    )


def test_a_tokenizer_that_cannot_go_on_from_a_text_fills_in_no_middle(tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(DATA / "hf_llama", path)
    pipeline = json.loads((path / "tokenizer.json").read_text())
    for token, name in zip(pipeline["added_tokens"][:3], ("<PRE>", "<SUF>", "<MID>"), strict=True):
        pipeline["model"]["vocab"][name] = pipeline["model"]["vocab"].pop(token["content"])
        token["content"] = name
    pipeline["model"]["unk_token"] = "<PRE>"
    pipeline["post_processor"] = None
    write(path, "tokenizer.json", pipeline)
    assert open_text(path).fim == FimTokens(0, 1, 2)
    write(path, "tokenizer.json", pipeline | {"normalizer": {"type": "Lowercase"}})
    text = open_text(path)
    assert text.fim is None
    assert not text.tokenizer.can_continue


def test_a_token_that_the_model_has_no_row_for_is_the_callers_mistake(folder: Path) -> None:
    write(folder, "config.json", {"vocab_size": 799})
    tokenizer = open_text(folder).tokenizer
    last = tokenizer.token_bytes(799).decode()
    with pytest.raises(InvalidRequest, match="which this model does not have"):
        tokenizer.encode(last)


def test_pooling_of_a_folder(folder: Path) -> None:
    def pooling(config: dict[str, Any]) -> Any:
        write(folder, "1_Pooling/config.json", config)
        return open_text(folder).pooling

    off = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 64}
    assert pooling(off) is None
    assert pooling(off | {"pooling_mode_mean_tokens": True}) == "mean"
    assert pooling(off | {"pooling_mode_lasttoken": True}) == "last"
    assert pooling({"pooling_mode": "lasttoken"}) == "last"
    with pytest.raises(ModelFileError, match="pooling by 'cls and mean' is not supported"):
        pooling({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True})


def changed_tokenizer(folder: Path, **changes: Any) -> None:
    value = json.loads((folder / "tokenizer.json").read_text())
    write(folder, "tokenizer.json", value | changes)


def test_truncation_and_padding_of_the_file_are_not_ours(folder: Path) -> None:
    changed_tokenizer(
        folder,
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 90},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "x",
        },
    )
    assert 2 < len(open_text(folder).tokenizer.encode("Some words, and more.")) < 90


@pytest.mark.parametrize("flags", [{"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}])
def test_special_tokens_that_look_around_them_see_the_whole_text(
    folder: Path, flags: dict[str, bool]
) -> None:
    value = json.loads((folder / "tokenizer.json").read_text())
    changed_tokenizer(folder, added_tokens=[token | flags for token in value["added_tokens"]])
    tokenizer = open_text(folder).tokenizer
    text = "word<|im_end|> 9 <|im_start|>  word <|im_end|>9\n<|im_start|>"
    assert tokenizer.min_num_tokens(" " * 100) == (0 if "rstrip" in flags else 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.models.text_split.PIECE_CHARS", 1)
        pieces = tokenizer.encode(text)
    assert pieces == tokenizer.encode(text)


def test_text_is_encoded_whole_where_nothing_is_known_about_words(folder: Path) -> None:
    changed_tokenizer(
        folder,
        pre_tokenizer={
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    )
    tokenizer = open_text(folder).tokenizer
    assert list(tokenizer._parts.splitter.split("word " * 100_000)) == ["word " * 100_000]
    changed_tokenizer(folder, normalizer={"type": "Lowercase"})
    assert open_text(folder).tokenizer.min_num_tokens("a" * 100) == 0


@pytest.mark.parametrize("last", ['""', "null"])
def test_a_prefix_that_ends_the_process_is_refused(folder: Path, last: str) -> None:
    """Found by fuzzing: the package cuts it off "\u2581" as if it were one byte. A second key must not hide it."""
    merge = '"vocab":{"a":0,"\u2581":1,"a\u2581":2},"merges":[["a","\u2581"]]'
    prefix = '"continuing_subword_prefix"'
    write(folder, "tokenizer.json", f'{{"model":{{"type":"BPE",{prefix}:"e",{merge}}}}}')
    with pytest.raises(ModelFileError, match="continuing_subword_prefix 'e', which is not supported"):
        open_text(folder)
    write(folder, "tokenizer.json", f'{{"model":{{"type":"BPE",{prefix}:"e",{prefix}:{last},{merge}}}}}')
    with pytest.raises(ModelFileError, match="is neither byte-level"):
        open_text(folder)


def test_a_post_processor_that_panics_is_refused(folder: Path) -> None:
    """Found by fuzzing: a template with a token that it does not define."""
    single = [{"SpecialToken": {"id": "none", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    changed_tokenizer(
        folder,
        post_processor={"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}},
    )
    with pytest.raises(ModelFileError, match=r"tokenizer\.json cannot be used"):
        open_text(folder)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer.json", "{", "tokenizer.json cannot be used"),
        ("tokenizer.json", "[" * 10_000, "tokenizer.json cannot be used"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be used"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
        ("tokenizer_config.json", {"chat_template": 3}, "is not a string"),
        ("tokenizer_config.json", {"chat_template": "{% if %}"}, "does not parse"),
        ("special_tokens_map.json", "nonsense", "not valid JSON"),
        ("generation_config.json", "", "not valid JSON"),
        ("config.json", {"vocab_size": 10**12}, "is not supported"),
    ],
)
def test_folders_that_cannot_be_used_are_refused_by_name(
    folder: Path, name: str, content: Any, reason: str
) -> None:
    write(folder, name, content)
    with pytest.raises(ModelFileError, match=reason):
        open_text(folder)


def test_other_tokenizers_are_refused_by_name(folder: Path) -> None:
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]], "byte_fallback": False}
    changed_tokenizer(folder, model=unigram, added_tokens=[])
    with pytest.raises(ModelFileError, match="'Unigram' is not supported"):
        open_text(folder)
    shutil.copy(DATA / "hf_qwen2" / "tokenizer.json", folder)
    changed_tokenizer(folder, pre_tokenizer=None)
    with pytest.raises(ModelFileError, match="neither byte-level"):
        open_text(folder)


def test_a_folder_with_sentencepieces_own_file_only_is_refused_with_advice(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json\.$"):
        open_text(folder)
    (folder / "tokenizer.model").touch()
    with pytest.raises(ModelFileError, match="Save the tokenizer anew"):
        open_text(folder)


def test_files_are_bounded_and_lie_in_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").write_text("x" * (1024 * 1024 + 1))
    with pytest.raises(ModelFileError, match="larger than 1048576 bytes"):
        open_text(folder)
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match="not valid UTF-8"):
        open_text(folder)
    (folder / "chat_template.jinja").unlink()
    (tmp_path / "secret").write_text("secret")
    (folder / "chat_template.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="symbolic link out of"):
        open_text(folder)
