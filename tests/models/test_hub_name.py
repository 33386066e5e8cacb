import pytest

from headway.core.errors import FetchError
from headway.models.hub_name import ChosenFiles, HubName, choose_files, model_stem, parse_hub_name

FOLDER = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("owner/name", HubName(repository="owner/name")),
        ("Qwen/Qwen2.5-0.5B_x", HubName(repository="Qwen/Qwen2.5-0.5B_x")),
        ("owner/name@v1.0", HubName(repository="owner/name", revision="v1.0")),
        ("owner/name@refs/pr/1", HubName(repository="owner/name", revision="refs/pr/1")),
        ("owner/name:Q4_K_M", HubName(repository="owner/name", choice="Q4_K_M")),
        ("owner/name:a-Q4_0.gguf", HubName(repository="owner/name", choice="a-Q4_0.gguf")),
        ("owner/name@v1:sub/a.gguf", HubName(repository="owner/name", revision="v1", choice="sub/a.gguf")),
        ("hf.co/owner/name:Q8_0", HubName(repository="owner/name", choice="Q8_0")),
        ("https://huggingface.co/owner/name", HubName(repository="owner/name")),
    ],
)
def test_names_of_a_hubs_models(text: str, name: HubName) -> None:
    assert parse_hub_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "", "name", "/owner/name", "./name", "../name", "owner/..", "owner/name/more", "owner/", "/", "~/name",
        "owner/name@", "owner/name:", "owner/name@..", "owner/name@a/../b", "owner/name@/etc/passwd",
        "owner/name:../a.gguf", "owner/na me", "owner/name\n", "ówner/name", "http://example.org/owner/name",
    ],
)  # fmt: skip
def test_what_is_no_name_of_a_hubs_model(text: str) -> None:
    assert parse_hub_name(text) is None


@pytest.mark.parametrize("text", ["owner/name", "owner/name@v1", "owner/name:Q4_0", "owner/name@v1:x.gguf"])
def test_a_name_prints_as_it_is_typed(text: str) -> None:
    assert str(parse_hub_name(text)) == text


def choose(text: str, *files: str) -> ChosenFiles:
    name = parse_hub_name(text)
    assert name is not None
    return choose_files(name, files)


def test_a_folder_is_weights_configuration_and_tokenizer_and_no_code() -> None:
    kept = (*FOLDER, "1_Pooling/config.json", "chat_template.jinja", "tokenizer.model")
    others = (
        "modeling.py", "pytorch_model.bin", "README.md", "original/model.safetensors", "consolidated.safetensors",
        "adapter_model.safetensors", "onnx/model.onnx", "training_args.bin", ".gitattributes",
    )  # fmt: skip
    assert choose("o/n", *kept, *others) == ChosenFiles(files=tuple(sorted(kept)), main=None)


def test_a_sharded_folder_brings_all_shards_and_their_index() -> None:
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    files = ("config.json", "model.safetensors.index.json", *shards)
    assert choose("o/n", *files).files == tuple(sorted(files))


def test_the_only_gguf_is_the_model() -> None:
    assert choose("o/n", "README.md", "a.gguf", "mmproj-f16.gguf", "imatrix.gguf") == ChosenFiles(
        files=("a.gguf",), main="a.gguf"
    )


def test_weights_with_a_configuration_win_unless_a_gguf_is_named() -> None:
    assert choose("o/n", *FOLDER, "a-Q4_0.gguf").main is None
    assert choose("o/n:q4_0", *FOLDER, "a-Q4_0.gguf").main == "a-Q4_0.gguf"


QUANTISED = (
    "M-Q4_K_M.gguf",
    "M-Q8_0.gguf",
    "M-UD-Q4_K_M.gguf",
    "M-IQ4_NL.gguf",
    "M.Q5_0.gguf",
    "M-BF16.gguf",
)


@pytest.mark.parametrize(
    ("choice", "file"),
    [
        ("", "M-Q4_K_M.gguf"),
        (":Q8_0", "M-Q8_0.gguf"),
        (":q8_0", "M-Q8_0.gguf"),
        (":Q5_0", "M.Q5_0.gguf"),
        (":UD-Q4_K_M", "M-UD-Q4_K_M.gguf"),
        (":Q4_K_M", "M-Q4_K_M.gguf"),
        (":IQ4_NL", "M-IQ4_NL.gguf"),
        (":bf16", "M-BF16.gguf"),
        (":M-Q8_0.gguf", "M-Q8_0.gguf"),
    ],
)
def test_a_quantisation_or_a_file_name_chooses(choice: str, file: str) -> None:
    assert choose(f"o/n{choice}", *QUANTISED) == ChosenFiles(files=(file,), main=file)


def test_the_shards_of_a_gguf_come_together() -> None:
    shards = tuple(f"Q8_0/M-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3))
    whole = ChosenFiles(files=shards, main=shards[0])
    for choice in ("", ":Q8_0", ":M-Q8_0-00001-of-00003.gguf", f":{shards[1]}"):
        assert choose(f"o/n{choice}", *reversed(shards)) == whole
    with pytest.raises(FetchError, match="nor a whole GGUF"):
        choose("o/n", *shards[:2])


@pytest.mark.parametrize(
    ("text", "files", "message"),
    [
        ("o/n", (), "neither safetensors weights with a config.json nor a whole GGUF file"),
        ("o/n", ("config.json", "pytorch_model.bin"), "may run code"),
        ("o/n", ("model.safetensors",), "neither safetensors weights with a config.json"),
        ("o/n", ("a-Q8_0.gguf", "a-Q5_0.gguf"), r"has several models: name one .* o/n:Q5_0 \(there are: Q5_0, Q8_0\)"),
        ("o/n:Q9", ("a-Q8_0.gguf",), r"has no Q9: name one after a colon, as in o/n:Q8_0"),
        ("o/n:Q8_0", ("a-Q8_0.gguf", "b-Q8_0.gguf"), "more than one Q8_0"),
        ("o/n", ("one.gguf", "two.gguf"), r"o/n:one.gguf \(there are: one.gguf, two.gguf\)"),
        ("o/n:Q8_0", FOLDER, "nor a whole GGUF"),
        ("o/n", ("a\x1b[31m.gguf", "b\n.gguf"), "nor a whole GGUF"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen_is_one_line(text: str, files: tuple[str, ...], message: str) -> None:
    with pytest.raises(FetchError, match=message) as caught:
        choose(text, *files)
    assert "\n" not in caught.value.message


def test_a_long_list_of_files_is_cut() -> None:
    with pytest.raises(FetchError, match=", …"):
        choose("o/n", *(f"m{number}.gguf" for number in range(100)))


@pytest.mark.parametrize(
    ("file", "stem"),
    [("a/M.Q8_0.gguf", "M.Q8_0"), ("M-00001-of-00002.gguf", "M"), ("M.GGUF", "M"), ("weights", "weights")],
)
def test_stems(file: str, stem: str) -> None:
    assert model_stem(file) == stem
