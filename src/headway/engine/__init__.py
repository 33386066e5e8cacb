"""Scheduler, step loop, and the client that reaches them in the same or another process."""
