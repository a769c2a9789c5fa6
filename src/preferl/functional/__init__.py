"""Formulas, each as a function (torch)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.functional.ordinal import (
        ordered_thresholds as ordered_thresholds,
        rating_loss as rating_loss,
    )
    from preferl.functional.preference import (
        contrastive_loss as contrastive_loss,
        lower_bound as lower_bound,
        mean as mean,
        pool as pool,
        preference_accuracy as preference_accuracy,
        preference_logits as preference_logits,
        preference_loss as preference_loss,
        preference_probability as preference_probability,
    )
    from preferl.functional.regret import (
        advantages as advantages,
        optimal_policies as optimal_policies,
        segment_regret as segment_regret,
        successor_features as successor_features,
    )
    from preferl.functional.value import (
        advantage_weights as advantage_weights,
        cosine_decay as cosine_decay,
        expectile_loss as expectile_loss,
        expectile_weight as expectile_weight,
        gaussian_log_density as gaussian_log_density,
        soft_update as soft_update,
        td_target as td_target,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
