"""Environments with rewards learned from answers, and what drives and saves them."""
