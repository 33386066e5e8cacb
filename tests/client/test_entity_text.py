import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.entity import MAX_ENTITY_CHARS, Entity
from headway.client.entity_text import definitions_by_rules, entities_of_text


def found(text: str, *, by_user: bool = True) -> list[tuple[str, str]]:
    return [(entity.kind, entity.text) for entity in entities_of_text(text, by_user=by_user)]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("It is in src/app/cache.py.", "src/app/cache.py"),
        ("see `parser.rs:12:4`:", "parser.rs"),
        ("(./scripts/build)", "./scripts/build"),
        ("at /etc/nginx/nginx.conf, line 3", "/etc/nginx/nginx.conf"),
        ("~/.config/app.toml", "~/.config/app.toml"),
        (r"C:\work\main.cpp", r"C:\work\main.cpp"),
        ("**README.md**", "README.md"),
        ("../shared/style.css", "../shared/style.css"),
    ],
)
def test_paths(text: str, path: str) -> None:
    assert found(text) == [("path", path)]


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("Call `evict_oldest()` first.", ("function", "evict_oldest")),
        ("the evict_oldest helper", ("name", "evict_oldest")),
        ("a LruCache", ("name", "LruCache")),
        ("lruCache holds", ("name", "lruCache")),
        ("an HTTPServer", ("name", "HTTPServer")),
        ("asyncio.Queue blocks", ("name", "asyncio.Queue")),
        ("std::vector grows", ("name", "std::vector")),
        ("set MAX_SIZE", ("name", "MAX_SIZE")),
        ("compute(x)", ("function", "compute")),
        ("`broadcast` is slow", ("name", "broadcast")),
        ("`Cache.get()` is slow", ("function", "Cache.get")),
    ],
)
def test_names(text: str, entity: tuple[str, str]) -> None:
    assert found(text, by_user=False) == [entity]


@pytest.mark.parametrize(
    "text",
    [
        "Why is this slow?",
        "See https://example.org/a/b.py for more.",
        "e.g. and i.e. and 3.14 and 1/2",
        "either/or",
        "JavaScript on GitHub",
        "f(x)",
        "`x` and `git status`",
        "Done. Then it works.",
        "___",
        "",
    ],
)
def test_plain_words_are_nothing(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("KeyError: 'abc'", "KeyError: 'abc'"),
        ("E   app.errors.StoreError: disk full", "app.errors.StoreError: disk full"),
        ("error[E0502]: cannot borrow `x`", "error[E0502]: cannot borrow `x`"),
        ("main.c:3:5: error: expected ';'", "error: expected ';'"),
        ("a.ts(3,1): error TS2304: Cannot find it", "error TS2304: Cannot find it"),
        ("struct.error: bad char in format", "struct.error: bad char in format"),
        ("fatal: not a repository", "fatal: not a repository"),
        ("thread panicked: panic at 12", "panic at 12"),
    ],
)
def test_errors_are_the_rest_of_their_line(line: str, error: str) -> None:
    assert ("error", error) in found(f"It says\n{line}\nand stops", by_user=False)


def test_an_errors_class_alone_is_a_name() -> None:
    assert found("It raises ValueError here", by_user=False) == [("name", "ValueError")]


@pytest.mark.parametrize(
    "rule",
    [
        "It must not use more than 40 MB.",
        "Never call eval here.",
        "Please keep the public names.",
        "at most 3 retries per call",
    ],
)
def test_what_the_user_insists_on_is_a_rule(rule: str) -> None:
    assert ("rule", rule) in found(f"Here is a file.\n{rule}\nThanks.")
    assert "rule" not in [kind for kind, _ in found(rule, by_user=False)]


def test_a_long_error_is_cut_behind_a_word() -> None:
    ((kind, text), *_) = found("ValueError: " + "word " * 100, by_user=False)
    assert kind == "error"
    assert MAX_ENTITY_CHARS - 5 <= len(text) <= MAX_ENTITY_CHARS
    assert text.endswith("word…")


@pytest.mark.parametrize(
    ("code", "entities"),
    [
        ("def a(): pass\n  async def b(): ...", [("function", "a"), ("function", "b")]),
        ("export default class Foo extends Bar {", [("class", "Foo")]),
        ("pub fn run() {}\nstruct Job;\ntrait T {}", [("function", "run"), ("type", "Job"), ("type", "T")]),
        (
            "func (s *Server) Serve(l int) {}\ntype Config struct {}",
            [("function", "Serve"), ("type", "Config")],
        ),
        ("# def in a comment\nredefine x\nclassy y", []),
    ],
)
def test_definitions_without_a_grammar(code: str, entities: list[tuple[str, str]]) -> None:
    assert [(one.kind, one.text) for one in definitions_by_rules(code)] == entities


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Z", "Cc"])), st.booleans())
def test_any_text_gives_short_lines_and_the_same_each_time(text: str, by_user: bool) -> None:
    entities = list(entities_of_text(text, by_user=by_user))
    assert entities == list(entities_of_text(text, by_user=by_user))
    for entity in entities:
        assert isinstance(entity, Entity)
        assert 1 <= len(entity.text) <= MAX_ENTITY_CHARS
        assert len(entity.text.splitlines()) == 1
