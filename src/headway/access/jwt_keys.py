"""The keys that JWT are checked with, from a file that is read again when it changes. Needs the extra `gateway`.

No key is fetched over the network: whoever rotates keys puts a new file in the place of the old one.
"""

import logging
import os
from pathlib import Path
from typing import Final

from jwt import PyJWK

from headway.access.config import JwtConfig
from headway.access.key_files import read_keys
from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import ConfigError

logger = logging.getLogger("headway.access.jwt")

LOOK_AGAIN_NS: Final = 5 * NS_PER_S
"""How often the file is looked at."""


class JwtKeys:
    """The keys of one file."""

    def __init__(self, config: JwtConfig, clock: Clock) -> None:
        """Read the file; raises ConfigError."""
        self._config = config
        self._clock = clock
        self._path = Path(config.jwks_file or config.pem_file or config.secret_file or "")
        self._file = _identity(self._path)
        self._keys = read_keys(config)
        self._looked_ns = clock.now_ns()
        self.generation = 0
        """Grows when the keys change: what was found right by the old ones may no longer be."""

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key for a JWT's header, None if there is none, or no saying which."""
        return self._keys.find(key_id, algorithm)

    def refresh(self) -> None:
        """Read the file again if it is time to, and it changed. One that is no good changes nothing but the log."""
        now_ns = self._clock.now_ns()
        if now_ns - self._looked_ns < LOOK_AGAIN_NS:
            return
        self._looked_ns = now_ns
        file = _identity(self._path)
        if file == self._file:
            return
        self._file = file
        try:
            self._keys = read_keys(self._config)
        except ConfigError as error:
            logger.warning("the keys for JWT stay what they were: %s", error.message)
        else:
            self.generation += 1
            logger.info("the keys for JWT were read again")


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file does; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
