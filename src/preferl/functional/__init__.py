"""Formulas, one function each (torch)."""

from preferl.functional.combine import lower_bound, mean
from preferl.functional.pooling import pool
from preferl.functional.preference import (
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)
from preferl.functional.value import (
    advantage_weights,
    cosine_decay,
    expectile_loss,
    expectile_weight,
    gaussian_log_density,
    soft_update,
    td_target,
)

__all__ = [
    "advantage_weights",
    "cosine_decay",
    "expectile_loss",
    "expectile_weight",
    "gaussian_log_density",
    "lower_bound",
    "mean",
    "pool",
    "preference_accuracy",
    "preference_logits",
    "preference_loss",
    "preference_probability",
    "soft_update",
    "td_target",
]
