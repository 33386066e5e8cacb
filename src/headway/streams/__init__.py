"""Streams that survive: ids, logs, acknowledgements and resending. It knows no HTTP."""
