"""Bursts and scans in virtual time, over the code that limits a real gateway."""
