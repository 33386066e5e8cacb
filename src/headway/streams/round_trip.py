"""Smoothed round-trip time, as TCP estimates it (RFC 6298, section 2, alpha = 1/8), in whole nanoseconds. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """`smoothed_ns`: None = nothing was measured yet."""

    smoothed_ns: int | None = None

    def after(self, sample_ns: int) -> "RoundTrip":
        """Return the estimate after one more sample, of something that was sent once (Karn's rule, RFC 6298, section 3)."""
        if self.smoothed_ns is None:
            return RoundTrip(sample_ns)
        return RoundTrip((7 * self.smoothed_ns + sample_ns) // 8)
