"""What can go wrong, whose fault it is, and what to do about it.

HeadwayError
├── RequestError              the caller's mistake, HTTP 4xx
│   ├── InvalidRequest        400  a field is malformed or not supported (`param` names it)
│   ├── ContextExceeded       400  prompt + max_tokens does not fit the context, or the KV cache
│   ├── Unauthenticated       401  nobody whom we know shows this token, or none was sent
│   ├── Forbidden             403  we know who asks, and he may not
│   ├── ModelNotFound         404
│   ├── SessionNotFound       404
│   ├── StreamNotFound        404  no such stream, or somebody else's
│   ├── RequestTimeout        408  the request arrived too slowly
│   ├── ResyncRequired        410  a stream cannot go on from there without a gap
│   ├── PayloadTooLarge       413
│   ├── StreamUnread          429  a stream's client acknowledged too little for too long
│   ├── UpstreamLimited       429  a remote engine's limit for us all, with its Retry-After
│   ├── HeadersTooLarge       431
│   ├── OverBudget            400  prompt + max_tokens exceed what the caller may use in a whole minute
│   └── RateLimited           429  the caller's own limit, with Retry-After: of requests a second
│       ├── TooManyConcurrent 429  of calls at once
│       └── TokensExhausted   429  of tokens a minute
├── Unavailable               the server's limit, HTTP 503 with Retry-After
│   ├── TooManyConnections
│   ├── QueueFull
│   ├── DeadlineUnmet         the first token could not come in time
│   ├── Displaced             a better class needed the place before the first token
│   ├── Draining              shutting down
│   ├── StreamLogFull         the logs of all streams together take no more
│   ├── StreamLogUnavailable  where streams are kept cannot be reached or written
│   ├── AccessUnavailable     who asks cannot be told now: the store of tokens fails
│   └── EngineUnavailable     the engine process is starting or restarting
├── EngineDied                500  the engine ended while the request ran, and none that goes on with it came back
├── UpstreamFailed            502  a remote engine failed, or answered with what is no answer
├── UpstreamTimeout           504  a remote engine said nothing for too long
├── InternalError             500  a bug of ours; details stay in the log
├── ModelFileError            a model file is malformed, truncated or unsupported (CLI: one line, exit code 2)
├── ConfigError               a setting is unknown or out of range (CLI: one line, exit code 2)
└── FetchError                a model could not be fetched (CLI: one line, exit code 2)

429 is the caller's own limit and 503 the server's; both carry `Retry-After` and a reason code (`code`).
Every message is a sentence that says what to do.
"""

from headway.core.quota import NO_QUOTAS, Quotas


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


class Unauthenticated(RequestError):
    """No token came, or one that nobody has; whether it is unknown, revoked or expired is not told."""

    status = 401
    code = "unauthenticated"


class Forbidden(RequestError):
    """The caller is known, and not allowed to do this."""

    status = 403
    code = "forbidden"


class ModelNotFound(RequestError):
    """No such model is served here."""

    status = 404
    code = "model_not_found"


class SessionNotFound(RequestError):
    """No such conversation is remembered here."""

    status = 404
    code = "session_not_found"


class StreamNotFound(RequestError):
    """No such stream, or one that belongs to somebody else: the two look the same."""

    status = 404
    code = "stream_not_found"


class ResyncRequired(RequestError):
    """A stream cannot go on from where its client stands without a gap or a splice; the request must be sent again."""

    status = 410
    code = "resync_required"


class StreamUnread(RequestError):
    """A stream's log was full for too long, because its client acknowledged too little."""

    status = 429
    code = "stream_unread"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = 1.0) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)


class UpstreamLimited(RequestError):
    """A remote engine takes no more from this gateway for now; `retry_after_s` is what it said."""

    status = 429
    type = "rate_limit_error"
    code = "upstream_limited"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = 1.0) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)


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


class OverBudget(RequestError):
    """The request alone exceeds the caller's tokens per minute: no wait would help, so it is not a 429."""

    code = "tokens_over_limit"


class RateLimited(RequestError):
    """The caller's own limit; retry after `retry_after_s`. `quotas`: where he stands, for `x-ratelimit-*` headers."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = 1.0,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.quotas = quotas


class TooManyConcurrent(RateLimited):
    """As many of the caller's calls run as he may have at once."""

    code = "too_many_concurrent"


class TokensExhausted(RateLimited):
    """The caller has too few tokens left for this minute."""

    code = "tokens_exhausted"


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


class Displaced(Unavailable):
    """A better class needed the place that this request had, and it had no token yet."""

    code = "displaced"


class Draining(Unavailable):
    """The server is shutting down and takes no new requests."""

    code = "draining"


class StreamLogFull(Unavailable):
    """The logs of all resumable streams together take no more."""

    code = "stream_log_full"


class StreamLogUnavailable(Unavailable):
    """Where resumable streams are kept cannot be reached or written."""

    code = "stream_log_unavailable"


class AccessUnavailable(Unavailable):
    """Who asks cannot be told now, as the store of tokens fails."""

    code = "access_unavailable"


class EngineUnavailable(Unavailable):
    """The engine process is starting or restarting."""

    code = "engine_unavailable"


class EngineDied(HeadwayError):
    """The engine process ended while the request ran; the request may be sent again."""

    code = "engine_died"


class UpstreamFailed(HeadwayError):
    """A remote engine failed, or its answer is none; the request may be sent again."""

    status = 502
    code = "upstream_failed"


class UpstreamTimeout(HeadwayError):
    """A remote engine said nothing for too long; the request may be sent again."""

    status = 504
    code = "upstream_timeout"


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
        Unauthenticated,
        Forbidden,
        ModelNotFound,
        SessionNotFound,
        StreamNotFound,
        ResyncRequired,
        StreamUnread,
        UpstreamLimited,
        RequestTimeout,
        PayloadTooLarge,
        HeadersTooLarge,
        OverBudget,
        RateLimited,
        TooManyConcurrent,
        TokensExhausted,
        Unavailable,
        TooManyConnections,
        QueueFull,
        DeadlineUnmet,
        Displaced,
        Draining,
        StreamLogFull,
        StreamLogUnavailable,
        AccessUnavailable,
        EngineUnavailable,
        EngineDied,
        UpstreamFailed,
        UpstreamTimeout,
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
