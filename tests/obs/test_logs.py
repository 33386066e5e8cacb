import io
import json
import logging
import os
from collections.abc import Iterator

import msgspec
import pytest

from headway.obs import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(*, json_lines: bool, level: str = "INFO") -> str:
    stream = io.StringIO()
    logs.configure(level, json_lines, stream)
    log = logging.getLogger("headway.test")
    log.debug("unseen")
    log.info("took %d\nms", 5, extra={"request_id": "abc", "status": 200, "usage": None, "http": {"a": 1}})
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    return stream.getvalue()


def test_plain_lines_hold_what_was_passed_and_cannot_be_forged() -> None:
    lines = logged(json_lines=False).splitlines()
    assert lines[0].partition(" ")[2] == "INFO headway.test: took 5\\nms request_id=abc status=200"
    assert lines[1].partition(" ")[2] == "ERROR headway.test: failed"
    assert lines[2].startswith("Traceback")
    assert lines[-1] == "ValueError: broken"


def test_control_characters_are_written_out() -> None:
    stream = io.StringIO()
    logs.configure("INFO", False, stream)
    logging.getLogger("t").info("\x1b[2J%s\t€", "\x9b", extra={"path": "/a\nb"})
    assert stream.getvalue().partition(" ")[2] == "INFO t: \\x1b[2J\\x9b\\t€ path=/a\\nb\n"


def test_json_is_one_object_a_line() -> None:
    first, second = (msgspec.json.decode(line) for line in logged(json_lines=True).splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "INFO",
        "logger": "headway.test",
        "message": "took 5\nms",
        "request_id": "abc",
        "status": 200,
        "usage": None,
        "http": {"a": 1},
    }
    assert second["traceback"].endswith("ValueError: broken")


def test_json_takes_any_text_and_any_value() -> None:
    stream = io.StringIO()
    logs.configure("INFO", True, stream)
    logging.getLogger("t").info("\udc80\n", extra={"value": object()})
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue())["message"] == "\udc80\n"


def test_the_level_is_respected_and_an_earlier_configuration_replaced() -> None:
    before = io.StringIO()
    logs.configure("INFO", False, before)
    assert "unseen" in logged(json_lines=False, level="DEBUG")
    assert before.getvalue() == ""


def test_a_reader_who_stops_reading_loses_lines_and_holds_up_nobody() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as reader, open(write_end, "w") as writer:
        logs.configure("INFO", True, writer)
        log = logging.getLogger("headway.test")
        for _ in range(2000):
            log.info("x" * 100)  # the pipe holds 64 KiB
        before = reader.read(1 << 20).splitlines()
        log.info("y" * 10_000)
        after = [json.loads(line)["message"] for line in reader.read(1 << 20).splitlines()]
    assert all(json.loads(line)["message"] == "x" * 100 for line in before)
    assert after == [f"{2000 - len(before)} log lines were lost: nobody read them in time", "y" * 10_000]


def test_a_line_that_was_cut_off_spoils_no_other() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as reader, open(write_end, "w") as writer:
        logs.configure("INFO", True, writer)
        log = logging.getLogger("headway.test")
        log.info("x" * 1_000_000)
        reader.read(1 << 20)
        log.info("whole")
        cut, *lines = reader.read(1 << 20).splitlines()
    assert cut == b""
    assert [json.loads(line)["message"] for line in lines][1:] == ["whole"]


def test_a_reader_who_left_is_no_error() -> None:
    read_end, write_end = os.pipe()
    with open(write_end, "w") as writer:
        os.close(read_end)
        logs.configure("INFO", False, writer)
        logging.getLogger("headway.test").info("to nobody")
