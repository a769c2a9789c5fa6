"""Formulas, one function each (torch)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.functional.preference import contrastive_loss as contrastive_loss
    from preferl.functional.preference import lower_bound as lower_bound
    from preferl.functional.preference import mean as mean
    from preferl.functional.preference import pool as pool
    from preferl.functional.preference import preference_accuracy as preference_accuracy
    from preferl.functional.preference import preference_logits as preference_logits
    from preferl.functional.preference import preference_loss as preference_loss
    from preferl.functional.preference import preference_probability as preference_probability
    from preferl.functional.value import advantage_weights as advantage_weights
    from preferl.functional.value import cosine_decay as cosine_decay
    from preferl.functional.value import expectile_loss as expectile_loss
    from preferl.functional.value import expectile_weight as expectile_weight
    from preferl.functional.value import gaussian_log_density as gaussian_log_density
    from preferl.functional.value import soft_update as soft_update
    from preferl.functional.value import td_target as td_target
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
