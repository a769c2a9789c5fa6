"""The samplers of B-Pref that use the members' predictions, by name.

Lee et al., "B-Pref: Benchmarking Preference-Based Reinforcement Learning" (2021), section 4. The
hybrids draw ten pairs for each query, keep the more informative half, and choose pairs that lie far
apart from that half.
"""

from collections.abc import Callable

from preferl.data.comparisons import Comparisons
from preferl.feedback import pair_sampling
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.pair_sampling import Acquisition, CoveringPairs, InformativePairs, Scorer

LikelihoodInUse = Likelihood | Callable[[], Likelihood]
Asked = Callable[[], Comparisons | None] | None

KEPT = 0.5
"""Share of the candidates that a hybrid keeps for k-center, as in B-Pref."""


def disagreement(
    scorer: Scorer, likelihood: LikelihoodInUse, oversampling: float = 10
) -> InformativePairs:
    """Make the sampler of the pairs about which the members disagree most.

    Disagreement is the standard deviation over members of the probability that the first is
    preferred.
    """
    return InformativePairs(scorer, pair_sampling.probability_variance, oversampling, likelihood)


def entropy(
    scorer: Scorer, likelihood: LikelihoodInUse, oversampling: float = 10
) -> InformativePairs:
    """Make the sampler of the pairs on whose answer the members are least sure, one by one."""
    return InformativePairs(scorer, pair_sampling.entropy, oversampling, likelihood)


def k_center_disagreement(
    scorer: Scorer, likelihood: LikelihoodInUse, oversampling: float = 10, asked: Asked = None
) -> CoveringPairs:
    """Make the k-center sampler over the half of the candidates that `disagreement` ranks first."""
    return _hybrid(scorer, pair_sampling.probability_variance, likelihood, oversampling, asked)


def k_center_entropy(
    scorer: Scorer, likelihood: LikelihoodInUse, oversampling: float = 10, asked: Asked = None
) -> CoveringPairs:
    """Make the k-center sampler over the half of the candidates that `entropy` ranks first."""
    return _hybrid(scorer, pair_sampling.entropy, likelihood, oversampling, asked)


def _hybrid(
    scorer: Scorer,
    acquisition: Acquisition,
    likelihood: LikelihoodInUse,
    oversampling: float,
    asked: Asked,
) -> CoveringPairs:
    kept = max(KEPT * oversampling, 1)
    informative = InformativePairs(scorer, acquisition, oversampling / kept, likelihood)
    return CoveringPairs(informative, oversampling=kept, asked=asked)
