"""Environments: simulators, Atari, and this library's own."""
