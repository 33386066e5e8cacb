"""Logs to stderr: lines for people, or one JSON object a line for machines. It knows no request.

Whatever a caller passes as `extra` (the request id, for one) is printed with the line, in both forms; mappings are for
machines only, as the message says the same to people.

A reader that stops reading must not stop the service: what a full pipe does not take at once is lost, and counted.
"""

import json
import logging
import os
import select
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TextIO

_OWN_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; the rest was passed as `extra`."""
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
"""Control characters (C0, DEL, C1), written out."""


_PIPE_BUF_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready takes this much without blocking (pipe(7)); poll promises no more."""


def configure(level: str = "INFO", json_lines: bool = False, stream: TextIO | None = None) -> None:
    """Send every logger's lines of `level` and above to `stream` (None = stderr), replacing what was configured."""
    handler = _handler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if json_lines else PlainFormatter())
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # What no line here says need not be found out: a third of what a line takes (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _handler(stream: TextIO) -> logging.Handler:
    try:
        return UnblockedHandler(stream.fileno())
    except (AttributeError, OSError, ValueError):  # no file behind it, as in tests, or stderr was closed
        return logging.StreamHandler(stream)


class UnblockedHandler(logging.Handler):
    """Writes lines to a file descriptor, never waiting for its reader. The next line that goes tells how many were lost."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._num_lost = 0
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record's lines, or count it as lost."""
        try:
            line = self.format(record)
            if self._num_lost:
                begin = "\n" if self._torn else ""
                line = f"{begin}{self.format(_loss(self._num_lost))}\n{line}"
            written = self._write(line)
        except Exception:
            self.handleError(record)
        else:
            self._num_lost = 0 if written else self._num_lost + 1

    def _write(self, line: str) -> bool:
        data = f"{line}\n".encode(errors="backslashreplace")
        for start in range(0, len(data), _PIPE_BUF_BYTES):
            rest = data[start : start + _PIPE_BUF_BYTES]
            self._torn = self._torn or start > 0
            while rest:
                if not self._poll.poll(0):
                    return False
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except OSError:  # the reader has left, or the disk is full
                    return False
        self._torn = False
        return True


def _loss(num_lost: int) -> logging.LogRecord:
    text = f"{num_lost} log lines were lost: nobody read them in time"
    return logging.makeLogRecord(
        {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
    )


class PlainFormatter(logging.Formatter):
    """`14:03:21.123 INFO headway.access: GET /v1/models 200 0.4 ms request_id=…`, a traceback below if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        extra = "".join(
            f" {name}={value}"
            for name, value in _extra(record).items()
            if value is not None and not isinstance(value, Mapping)
        )
        # A message may hold what a caller sent: it must neither begin a line of its own nor move a terminal's cursor.
        text = (record.getMessage() + extra).translate(_ESCAPES)
        second, part = divmod(record.created, 1)
        line = f"{_time_of_day(int(second))}.{int(part * 1000):03} {record.levelname} {record.name}: {text}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, `extra`, traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        trace = _trace(self, record)
        if trace:
            fields["traceback"] = trace
        return json.dumps(
            fields, default=str
        )  # ASCII only, so that it takes any text, lone surrogates included


@lru_cache(maxsize=1)
def _time_of_day(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN_FIELDS}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    return record.exc_text or ""
