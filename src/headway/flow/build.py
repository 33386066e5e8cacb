"""Makes what a configuration asks for. It alone knows that there are several kinds of limits."""

from collections.abc import Callable

from headway.core.clock import Clock
from headway.core.errors import ConfigError
from headway.flow.config import LimitsConfig
from headway.flow.limits import Limits
from headway.flow.local import LocalLimits
from headway.flow.shared import SharedLimits


async def open_limits(
    config: LimitsConfig, clock: Clock, *, on_change: Callable[[bool, str], None] | None = None
) -> Limits:
    """Return limits in memory, or in Redis where the configuration names one; raises ConfigError.

    A Redis that is gone is no error: it may come later, and limits are local until then; `on_change` as for SharedLimits.
    """
    if config.redis_url is None:
        return LocalLimits(config, clock)
    try:
        from headway.flow.redis import RedisLimits
        from headway.flow.redis_pipe import connect
    except ImportError as error:
        raise ConfigError(
            'limits.redis_url: Redis needs redis-py: `make extras`, or pip install "headway[gateway]".'
        ) from error
    limits = SharedLimits(RedisLimits(config, connect(config.redis_url)), config, clock, on_change=on_change)
    await limits.start()
    return limits
