"""The settings of the reward service."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import final

from preferl.configs import require_fields
from preferl.errors import ConfigError, require_seed, require_share
from preferl.remote import Location, is_url
from preferl.store.quality.aggregation import CombineMethod
from preferl.threads import half_of_the_cores
from preferl.training.reward_presets import RewardSettings


@final
@dataclass(frozen=True)
class ServiceConfig:
    """Settings of when the reward service fits, what it fits, and what it publishes.

    Attributes:
        out: folder of published rewards, or the URL of one in object storage, such as
            s3://bucket/rewards; one service to a folder.
        reward: the model and how it is fitted. Each fit goes on from the last one, and makes at
            most 50 passes, not a published model's 10,000, unless epochs or a budget are given.
        context: steps that a model with history looks back; the length of a clip by default.
        initial_epochs: passes of the first fit, at least; later ones have less to learn.
        min_answers: queries with a decided answer before the first fit; fewer teach nothing.
        min_new_answers: answers of any kind but skips, after which the next fit begins.
        max_wait: seconds after which a single new answer is enough.
        validation: share of the queries whose answers are held out of training, to validate.
        combine: how several people's answers to one query become one; "each" leaves them apart,
            so that `reward.annotator_trust` knows who gave them.
        pessimism: deviations between members that are taken off their mean; 0 is the mean.
        reward_deviation: over the clips that were answered; the DRLHP paper has 1 for states and
            0.05 for pixels.
        centre: whether their mean is zero there.
        keep: versions that stay in the folder.
        cancel_after: versions after which an unanswered query is cancelled, since an old reward
            chose it; None cancels none.
        poll_seconds: between two looks for new answers.
        beat_seconds: between two heartbeats.
        stuck_after: seconds without an epoch or a look after which the service counts as stuck.
        seed: of weights, bootstraps and order.
        device: "cpu", "cuda" or "auto".
        threads: of the processor that a fit takes. None is one for perceptrons and half of the
            cores for other models, since an agent learns beside it: with threads on the same
            cores as another program's, a fit takes up to a hundred times as long.

    Raises:
        ConfigError: a number out of its range, or settings of the reward that do not go together.
    """

    out: Location
    reward: RewardSettings = field(default_factory=RewardSettings)
    context: int | None = None
    initial_epochs: int = 50
    min_answers: int = 20
    min_new_answers: int = 5
    max_wait: float = 60.0
    validation: float = 0.2
    combine: CombineMethod = "mean"
    pessimism: float = 0.0
    reward_deviation: float = 1.0
    centre: bool = True
    keep: int = 5
    cancel_after: int | None = None
    poll_seconds: float = 1.0
    beat_seconds: float = 5.0
    stuck_after: float = 300.0
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        if not is_url(self.out):
            object.__setattr__(self, "out", Path(self.out))
        require_fields(self, initial_epochs=1, min_answers=1, min_new_answers=1, keep=1)
        require_fields(self, context=1, cancel_after=1, threads=1, max_wait=0, pessimism=0)
        seconds = (0.001, 86_400)
        require_fields(self, poll_seconds=seconds, beat_seconds=seconds, stuck_after=seconds)
        require_share("validation", self.validation)
        require_seed(self.seed)
        deviation = self.reward_deviation
        if not 0 < deviation < inf:
            raise ConfigError(f"reward_deviation: expected above 0, got {deviation}.")
        if self.reward.choose:
            raise ConfigError(
                "reward.choose: expected one way to fit, got several to choose from. Choose "
                "offline, by `preferl reward fit --choose`."
            )
        # What does not go together is refused now and not after the first answers.
        self.reward.preset(length=self.context or 50, answers=self.min_answers)

    @property
    def fit_threads(self) -> int:
        """Threads of a fit; perceptrons are too small for several to be any faster."""
        by_default = 1 if self.reward.model in ("mlp", "mr") else half_of_the_cores()
        return self.threads or by_default
