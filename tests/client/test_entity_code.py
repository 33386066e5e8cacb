import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client import entity_code
from headway.client.entity_code import definitions, language_of

CODE = {
    "python": (
        "class Cache:\n    def get(self): ...\n@x\nasync def run(): pass\ndef broken(:\n",
        [("class", "Cache"), ("function", "get"), ("function", "run"), ("function", "broken")],
    ),
    "cpp": (
        (
            "struct Foo { int a; };\nclass Bar : Foo { void baz(); };\nusing Id = int;\nenum class Color { red };\n"
            "std::vector<int>& Bar::rows(int x) { Foo f; return y; }\nint *find(struct Foo f) { return 0; }\n"
        ),
        [
            ("type", "Foo"),
            ("class", "Bar"),
            ("type", "Id"),
            ("type", "Color"),
            ("function", "Bar::rows"),
            ("function", "find"),
        ],
    ),
    "go": (
        "package a\ntype Config struct { n int }\nfunc (s *Server) Serve() {}\nfunc main() {}\n",
        [("type", "Config"), ("function", "Serve"), ("function", "main")],
    ),
    "java": (
        "class A { A() {} int go() { return 1; } }\ninterface B {}\nenum C { X }\nrecord D(int x) {}\n",
        [("class", "A"), ("function", "A"), ("function", "go"), ("type", "B"), ("type", "C"), ("class", "D")],
    ),
    "javascript": (
        "class A { go() {} }\nfunction f() {}\nconst g = (x) => x, h = 3;\nlet k = function () {};\n",
        [("class", "A"), ("function", "go"), ("function", "f"), ("function", "g"), ("function", "k")],
    ),
    "typescript": (
        "interface Z { a: number }\ntype T = Z | null;\nexport const go = async () => 1;\nabstract class Q {}\n",
        [("type", "Z"), ("type", "T"), ("function", "go"), ("class", "Q")],
    ),
    "tsx": ("const View = () => <p>hi</p>;\n", [("function", "View")]),
    "rust": (
        "struct Job { n: i32 }\nenum E { A }\ntrait T { fn go(&self) {} }\nimpl T for Job {}\nmacro_rules! m { () => {} }\n",
        [("type", "Job"), ("type", "E"), ("type", "T"), ("function", "go"), ("function", "m")],
    ),
}


def skip_without(language: str) -> None:
    pytest.importorskip("tree_sitter", reason='needs pip install "headway[editor]"')
    pytest.importorskip(entity_code._GRAMMARS[language][0], reason='needs pip install "headway[editor]"')


@pytest.mark.parametrize("language", CODE)
def test_what_code_defines(language: str) -> None:
    skip_without(language)
    code, expected = CODE[language]
    found = definitions(code, language)
    assert found is not None
    assert [(entity.kind, entity.text) for entity in found] == expected


def test_every_grammar_has_a_case() -> None:
    assert set(CODE) == set(entity_code._GRAMMARS)


@pytest.mark.parametrize(
    ("fence", "language"),
    [
        ("python", "python"),
        ("py", "python"),
        ("Python title=x", "python"),
        ("{.py}", "python"),
        ("c++", "cpp"),
        ("tsx", "tsx"),
        ("golang", "go"),
        ("console", None),
        ("", None),
    ],
)
def test_fences_name_languages(fence: str, language: str | None) -> None:
    assert language_of(fence) == language


def test_without_a_grammar_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    entity_code._grammar.cache_clear()
    try:
        assert definitions("def f(): pass", "python") is None
    finally:
        entity_code._grammar.cache_clear()


@given(st.text(), st.sampled_from(sorted(CODE)))
def test_any_text_is_parsed(text: str, language: str) -> None:
    skip_without(language)
    for entity in definitions(text, language) or ():
        assert entity.text
