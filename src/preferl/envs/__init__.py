"""Environments: simulators, Atari, and our own."""
