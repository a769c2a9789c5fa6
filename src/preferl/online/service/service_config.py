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
            s3://bucket/rewards. Each folder belongs to one service.
        reward: the model and how it is fitted. Each fit starts from the last one. Unless epochs or
            a budget are given, it makes at most 50 passes instead of a published model's 10,000.
        context: number of steps that a model with history looks back; by default the length of a
            clip.
        initial_epochs: least number of passes of the first fit; later fits have less to learn.
        min_answers: queries with a decided answer before the first fit; fewer teach nothing.
        min_new_answers: number of new answers, not counting skips, at which the next fit begins.
        max_wait: seconds after which a single new answer is enough.
        validation: share of the queries whose answers are held out of training, for validation.
        combine: how several people's answers to one query become one; "each" keeps them apart, so
            that `reward.annotator_trust` knows who gave them.
        pessimism: how many standard deviations over the members are subtracted from their mean; 0
            gives the mean.
        reward_deviation: standard deviation of the reward over the clips with answers; the DRLHP
            paper uses 1 for states and 0.05 for pixels.
        centre: whether the reward has zero mean over these clips.
        keep: number of versions that stay in the folder.
        cancel_after: number of newer versions after which an unanswered query is cancelled, since
            an old reward chose it; None cancels none.
        poll_seconds: seconds between two looks for new answers.
        beat_seconds: seconds between two heartbeats.
        stuck_after: seconds without an epoch or a look after which the service counts as stuck.
        seed: seed of weights, bootstraps and order.
        device: "cpu", "cuda" or "auto".
        threads: processor threads of a fit. None takes one for perceptrons, and half of the cores
            for other models, since an agent learns beside the service. With threads on the same
            cores as those of another program, a fit takes up to a hundred times as long.

    Raises:
        ConfigError: a number is out of its range, or settings of the reward contradict each other.
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
                "reward.choose: expected a single way to fit, got several to choose from. Choose "
                "offline, with `preferl reward fit --choose`."
            )
        # Contradictions are refused now and not after the first answers.
        self.reward.preset(length=self.context or 50, answers=self.min_answers)

    @property
    def fit_threads(self) -> int:
        """Threads of a fit; perceptrons are so small that several would not be faster."""
        by_default = 1 if self.reward.model in ("mlp", "mr") else half_of_the_cores()
        return self.threads or by_default
