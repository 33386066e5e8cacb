"""Runs one step of a model: the boundary between Python, which decides, and C++, which computes."""
