"""Formulas, one function each (torch)."""

from preferl.functional.combine import lower_bound, mean
from preferl.functional.pooling import pool
from preferl.functional.preference import (
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)

__all__ = [
    "lower_bound",
    "mean",
    "pool",
    "preference_accuracy",
    "preference_logits",
    "preference_loss",
    "preference_probability",
]
