"""Metrics and logs: subscribers of events; nothing else depends on them."""
