"""What can go wrong between us and a hub, each as one sentence that says what to do. Used by `hub_worker` alone."""

import errno

import httpx2
from huggingface_hub import errors

from headway.core.errors import FetchError
from headway.models.hub_name import HubName

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_unreachable(error: Exception) -> bool:
    """Whether the hub could not be asked, so that what the cache holds may be as good as it gets."""
    return isinstance(
        error, (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, httpx2.TransportError)
    )


def fetch_error(name: HubName, error: Exception, endpoint: str) -> FetchError:
    """Return the error to show for what the library raised while it fetched `name` from `endpoint`."""
    return FetchError(_sentence(name, error, endpoint))


def _sentence(name: HubName, error: Exception, endpoint: str) -> str:
    for cause in _chain(error):
        match cause:
            case errors.GatedRepoError():
                return (
                    f"{name.repository} is gated: ask for access at {endpoint}/{name.repository}, then set HF_TOKEN to a "
                    "token of yours."
                )
            case errors.DisabledRepoError():
                return f"{name.repository} has been disabled on {endpoint}: choose another model."
            case errors.RepositoryNotFoundError():
                return (
                    f"There is no model {name.repository} on {endpoint}, or it is private: check the name (for a file, give "
                    "its path), and set HF_TOKEN for a private one."
                )
            case errors.RevisionNotFoundError():
                return f"{name.repository} has no revision {name.revision!r}: check what follows the @."
            case errors.HFValidationError():
                return f"{name.repository!r} is no name of a model: it has the form owner/name."
            case errors.OfflineModeIsEnabled():
                return (
                    f"{name} is not in the cache, or not all of it, and HF_HUB_OFFLINE forbids to fetch it: unset "
                    f"HF_HUB_OFFLINE, or run `headway pull {name}` where there is a network."
                )
            case errors.HfHubHTTPError() if cause.response.status_code in (401, 403):
                return (
                    f"{endpoint} refuses to give {name} (status {cause.response.status_code}): check HF_TOKEN and what its "
                    "owner may read."
                )
            case errors.HfHubHTTPError():
                return f"{endpoint} answered with status {cause.response.status_code}: try again later."
            case httpx2.TransportError() | httpx2.InvalidURL():
                why = str(cause).strip().rstrip(".") or type(cause).__name__
                return (
                    f"{name} is not on this machine, or not all of it, and {endpoint} cannot be reached ({why}): check the "
                    "name, the network, HTTPS_PROXY and HF_ENDPOINT; try again."
                )
            case OSError() if cause.errno in _DISK_FULL:
                return f"{name} could not be stored ({cause.strerror}): free some space, or set HF_HOME to another folder."
            case OSError() if cause.errno is not None and cause.filename is not None:
                return (
                    f"{name} could not be stored ({cause.strerror}: {cause.filename}): make the folder writable, or set "
                    "HF_HOME to another one."
                )
            case OSError() if str(cause).startswith("Consistency check failed"):
                return f"A file of {name} ended before its end: try again; what is whole is kept."
    first_line = next(iter(str(error).splitlines()), "")
    return f"{name} could not be fetched ({type(error).__name__}: {first_line}); try again."


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and what led to it, the latest first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(chain) < 8:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain
