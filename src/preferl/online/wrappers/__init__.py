"""Environments whose rewards are learned from answers, and what drives and saves them."""
