"""Teach agents by comparing clips of behaviour."""

__version__ = "0.1.0"
