"""What can go wrong, whose fault it is, and what to do about it.

HeadwayError
├── RequestError              the caller's mistake, HTTP 4xx
│   ├── InvalidRequest        400  a field is malformed or not supported (`param` names it)
│   ├── ContextExceeded       400  prompt + max_tokens does not fit the context, or the KV cache
│   ├── ModelNotFound         404
│   ├── SessionNotFound       404
│   ├── RequestTimeout        408  the request arrived too slowly
│   ├── PayloadTooLarge       413
│   └── HeadersTooLarge       431
├── Unavailable               the server's limit, HTTP 503 with Retry-After
│   ├── TooManyConnections
│   ├── QueueFull
│   ├── DeadlineUnmet         the first token could not come in time
│   ├── Draining              shutting down
│   └── EngineUnavailable     the engine process is starting or restarting
├── EngineDied                500  the engine ended while the request ran, and none that goes on with it came back
├── InternalError             500  a bug of ours; details stay in the log
├── ModelFileError            a model file is malformed, truncated or unsupported (CLI: one line, exit code 2)
├── ConfigError               a setting is unknown or out of range (CLI: one line, exit code 2)
└── FetchError                a model could not be fetched (CLI: one line, exit code 2)

429 is the caller's own limit and 503 the server's; both carry `Retry-After` and a reason code (`code`).
Every message is a sentence that says what to do.
"""


class HeadwayError(Exception):
    """Base of all errors a user may see. `status` is the HTTP status, `type` and `code` OpenAI's fields."""

    status: int = 500
    type: str = "server_error"
    code: str = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class RequestError(HeadwayError):
    """The caller's mistake."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class InvalidRequest(RequestError):
    """A field is malformed, out of range or not supported; `param` names it."""


class ContextExceeded(RequestError):
    """The prompt and the answer do not fit into the model's context or the KV cache."""

    code = "context_length_exceeded"


class ModelNotFound(RequestError):
    """No such model is served here."""

    status = 404
    code = "model_not_found"


class SessionNotFound(RequestError):
    """No such conversation is remembered here."""

    status = 404
    code = "session_not_found"


class RequestTimeout(RequestError):
    """The request's headers or body did not arrive in time."""

    status = 408
    code = "request_timeout"


class PayloadTooLarge(RequestError):
    """The request's body exceeds the configured limit."""

    status = 413
    code = "payload_too_large"


class HeadersTooLarge(RequestError):
    """The request line and headers exceed the limit."""

    status = 431
    code = "headers_too_large"


class Unavailable(HeadwayError):
    """The server's limit; retry after `retry_after_s`."""

    status = 503
    type = "server_error"
    code = "unavailable"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = 1.0) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)


class TooManyConnections(Unavailable):
    """As many connections are open as the server takes."""

    code = "too_many_connections"


class QueueFull(Unavailable):
    """Too many requests or tokens wait already."""

    code = "queue_full"


class DeadlineUnmet(Unavailable):
    """The first token is not expected by its deadline; `retry_after_s` is the wait that was predicted."""

    code = "deadline_unmet"


class Draining(Unavailable):
    """The server is shutting down and takes no new requests."""

    code = "draining"


class EngineUnavailable(Unavailable):
    """The engine process is starting or restarting."""

    code = "engine_unavailable"


class EngineDied(HeadwayError):
    """The engine process ended while the request ran; the request may be sent again."""

    code = "engine_died"


class InternalError(HeadwayError):
    """A bug of ours; the log has the details."""


class ModelFileError(HeadwayError):
    """A model file is malformed, truncated or needs something that we do not support."""

    code = "model_file"


class ConfigError(HeadwayError):
    """A setting is unknown, malformed or out of range."""

    code = "config"


class FetchError(HeadwayError):
    """A model could not be fetched."""

    code = "fetch"


_BY_CODE: dict[str, type[HeadwayError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        ContextExceeded,
        ModelNotFound,
        SessionNotFound,
        RequestTimeout,
        PayloadTooLarge,
        HeadersTooLarge,
        Unavailable,
        TooManyConnections,
        QueueFull,
        DeadlineUnmet,
        Draining,
        EngineUnavailable,
        EngineDied,
        InternalError,
        ModelFileError,
        ConfigError,
        FetchError,
    )
}


def error_from_code(
    code: str, message: str, *, param: str | None, retry_after_s: float | None
) -> HeadwayError:
    """Rebuild an error that crossed a process boundary as (code, message, param, retry_after_s)."""
    return _BY_CODE.get(code, InternalError)(message, param=param, retry_after_s=retry_after_s)
