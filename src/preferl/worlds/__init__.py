"""Environments of our own, whose ids `preferl.simulators` registers with gymnasium."""
