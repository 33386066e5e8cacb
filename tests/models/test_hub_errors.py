"""Sentences for what the hub's client raises and no hub on a loopback port provokes."""

import errno
import os

import httpx2
import pytest
from huggingface_hub import errors

from headway.core.errors import FetchError
from headway.models.hub_errors import fetch_error, is_unreachable
from headway.models.hub_name import HubName
from headway.models.hub_worker import _literally, _require_space

HUB = "https://hub.example.org"
NAME = HubName(repository="owner/name", choice="Q4_0")


def response(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", HUB))


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device): free some space"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/x"), "free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache"), "(Permission denied: /cache): make the folder"),
        (OSError(errno.EROFS, "Read-only file system", "/cache"), "make the folder writable"),
        (errors.DisabledRepoError("", response=response(403)), "has been disabled"),
        (errors.HfHubHTTPError("", response=response(403)), "(status 403): check HF_TOKEN"),
        (errors.HfHubHTTPError("", response=response(502)), "answered with status 502: try again later"),
        (httpx2.ReadTimeout(""), "owner/name:Q4_0 is not on this machine, or not all of it, and"),
        (httpx2.InvalidURL("no host"), "https://hub.example.org cannot be reached (no host): check the name, the"),
        (errors.OfflineModeIsEnabled("x"), "`headway pull owner/name:Q4_0` where there is a network"),
        (chained(errors.LocalEntryNotFoundError("long\ntext"), httpx2.ConnectError("refused")), "(refused)"),
        (OSError("Consistency check failed: …"), "ended before its end: try again"),
        (RuntimeError("first line\nsecond line"), "(RuntimeError: first line); try again"),
        (RuntimeError(), "(RuntimeError: ); try again"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_every_failure_is_one_sentence_that_says_what_to_do(error: Exception, sentence: str) -> None:
    message = fetch_error(NAME, error, HUB).message
    assert sentence in message
    assert "\n" not in message


def test_only_a_hub_that_could_not_be_asked_lets_the_cache_serve() -> None:
    assert is_unreachable(errors.OfflineModeIsEnabled("x"))
    assert is_unreachable(httpx2.ConnectError("refused"))
    assert not is_unreachable(errors.HfHubHTTPError("", response=response(404)))
    assert not is_unreachable(OSError(errno.ENOSPC, ""))


def test_a_cache_that_may_not_be_written_is_told_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root, which tests may run as, every folder may
    with pytest.raises(FetchError, match="not writable: make it writable, or set HF_HOME"):
        _require_space(NAME, 1)


def test_a_files_name_is_a_pattern_for_itself_alone() -> None:
    assert _literally("a[1]*?.gguf") == "a[[]1][*][?].gguf"
