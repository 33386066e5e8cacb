"""Processes that measure a peer: run by the interpreter of that peer's environment, standard library and peer only."""
