"""Code is cut by seed at line borders, and no line is sent twice unless asked."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import ConfigError
from headway.lab.code_corpus import CodeCorpus, SourceFile, standard_library
from headway.lab.token_estimate import estimated


def numbered(num_lines: int, name: str = "a.py") -> SourceFile:
    """Lines that name themselves, of different lengths."""
    return SourceFile(name, tuple(f"{name}:{line}" + "x" * (line % 7) for line in range(1, num_lines + 1)))


FILES = (numbered(60), numbered(45, "b/c.py"))
ALL_LINES = [line for file in FILES for line in file.lines]


@given(st.integers(0, 9), st.lists(st.integers(1, 30), max_size=40))
def test_no_line_is_cut_twice(seed: int, wanted: list[int]) -> None:
    corpus = CodeCorpus(FILES, seed)
    used: list[str] = []
    for num_lines in wanted:
        try:
            piece = corpus.take(num_lines)
        except ConfigError:
            continue
        lines = piece.text.split("\n")
        assert len(lines) == num_lines
        start = ALL_LINES.index(lines[0])
        assert lines == ALL_LINES[start : start + num_lines]
        assert lines[0].rstrip("x") == f"{piece.name}:{piece.first_line}"
        used += lines
    assert len(used) == len(set(used))
    assert corpus.num_unused_lines == len(ALL_LINES) - len(used)


@given(st.integers(0, 50), st.integers(1, 105))
def test_equal_pieces_leave_no_gap_that_would_hold_another(seed: int, num_lines: int) -> None:
    corpus = CodeCorpus(FILES, seed)
    for _ in range(105 // num_lines):
        corpus.take(num_lines)
    assert corpus.num_unused_lines == 105 % num_lines
    with pytest.raises(ConfigError, match="used up"):
        corpus.take(num_lines)


def test_repeating_is_only_begun_when_nothing_unused_is_left() -> None:
    corpus = CodeCorpus(FILES, 1)
    fresh = [corpus.take(50, repeat=True).text for _ in range(2)]
    assert len({line for text in fresh for line in text.split("\n")}) == 100
    unused = corpus.num_unused_lines
    assert set(corpus.take(50, repeat=True).text.split("\n")) < set(ALL_LINES)
    assert corpus.num_unused_lines == unused
    with pytest.raises(ConfigError, match="106 unused lines"):
        corpus.take(106, repeat=True)


@given(st.integers(0, 9), st.lists(st.integers(8, 150), max_size=15))
def test_a_piece_of_tokens_is_full_to_less_than_a_line(seed: int, wanted: list[int]) -> None:
    corpus, count = CodeCorpus(FILES, seed), estimated(3)
    used: list[str] = []
    for max_tokens in wanted:
        try:
            piece = corpus.take_tokens(max_tokens, count)
        except ConfigError:
            continue
        lines = piece.text.split("\n")
        following = ALL_LINES.index(lines[-1]) + 1
        assert count(piece.text) <= max_tokens
        if count(piece.text) < max_tokens:
            assert count(f"{piece.text}\n{ALL_LINES[following]}") > max_tokens
        used += lines
    assert len(used) == len(set(used))


def test_repeated_tokens_do_not_make_used_lines_unused() -> None:
    corpus = CodeCorpus(FILES, 3)
    while corpus.num_unused_lines:
        corpus.take(1)
    for _ in range(20):
        corpus.take_tokens(30, estimated(3), repeat=True)
    assert corpus.num_unused_lines == 0


def test_a_line_that_fits_nowhere_is_passed_over() -> None:
    files = (SourceFile("long.py", ("x" * 1000, "short = 1", "y" * 1000)),)
    corpus = CodeCorpus(files, 5)
    assert corpus.take_tokens(4, estimated(3)).text == "short = 1"
    with pytest.raises(ConfigError):
        corpus.take_tokens(4, estimated(3))
    with pytest.raises(ConfigError, match="No line of code fits into 1 tokens"):
        CodeCorpus(files, 5).take_tokens(1, lambda _: 2, repeat=True)


def test_a_block_depends_on_seed_and_key_alone() -> None:
    corpus, count = CodeCorpus(FILES, 1), estimated(3)
    block = corpus.block("7", 100, count)
    corpus.take(30)
    assert corpus.block("7", 100, count) == block
    assert block.startswith("# 7\n")
    assert count(block) == 100
    assert block.startswith(corpus.block("7", 40, count))
    assert len({corpus.block(str(key), 100, count) for key in range(50)}) == 50
    assert CodeCorpus(FILES, 2).block("7", 100, count) != block


def test_a_block_may_be_longer_than_all_code() -> None:
    count = estimated(3)
    assert count(CodeCorpus((numbered(2),), 1).block("7", 1000, count)) == 1000


def test_the_standard_library_is_read_in_order_without_tests_and_tables() -> None:
    files = standard_library()
    names = [file.name for file in files]
    assert names == sorted(names)
    assert {"argparse.py", "json/decoder.py"} <= set(names)
    folders = {part for name in names for part in name.split("/")[:-1]}
    assert folders.isdisjoint({"test", "tests", "site-packages", "encodings", "__pycache__"})
    assert sum(len(file.lines) for file in files) > 50_000
    assert not any(line.endswith("\r") or "\n" in line for file in files for line in file.lines)


def test_only_files_of_code_are_read(tmp_path: Path) -> None:
    for name in ("b.py", "a/c.py", "test/d.py", "lib-dynload/e.py", "_sysconfigdata_x.py", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"one = 1\r\n\x0ctwo = 2\n")
    (tmp_path / "latin.py").write_bytes(b"name = '\xe9'\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "b.py")
    files = standard_library(tmp_path)
    assert [file.name for file in files] == ["a/c.py", "b.py"]
    assert files[0].lines == ("one = 1", "\x0ctwo = 2")
    with pytest.raises(ConfigError, match="No Python source files"):
        standard_library(tmp_path / "lib-dynload" / "none")


def test_an_estimate_counts_begun_tokens() -> None:
    assert [estimated(5)("x" * length) for length in (0, 1, 50, 51)] == [0, 1, 10, 11]
    with pytest.raises(ConfigError, match="over 0"):
        estimated(0)
