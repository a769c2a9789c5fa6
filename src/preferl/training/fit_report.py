"""The report of a fit: its curves, and how well the reward predicts answers outside of the fit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final

import numpy as np

from preferl.feedback.likelihood import Likelihood
from preferl.runs.summary import Estimate
from preferl.shapes import FloatArray
from preferl.statistics import share_in_words, wilson_interval
from preferl.training.annotator_trust import Trust


@final
@dataclass(frozen=True)
class RatingFit:
    """How a reward was fitted to ratings and outcomes, and how well it predicts out-of-bag ones.

    Attributes:
        ratings: number of ratings trained on.
        outcomes: number of outcomes trained on.
        thresholds: `[E][A][5]` thresholds of each member and annotator, on the scale of scores: the
            four of ratings, then that of outcomes; one annotator where all share them.
        held_out: number of ratings and outcomes that a member's bootstrap left out.
        loss: mean loss of these under the members that did not learn from them; None if there are
            none.
        rating_tau: rank agreement of the left-out ratings and their predictions, Kendall's tau-b
            from -1 to 1; None without two different ratings.
        outcome_tau: rank agreement of the left-out outcomes and their predictions, in the same way.
    """

    ratings: int
    outcomes: int
    thresholds: list[list[list[float]]]
    held_out: int = 0
    loss: float | None = None
    rating_tau: float | None = None
    outcome_tau: float | None = None

    @property
    def in_words(self) -> str:
        """Return the agreement with out-of-bag ratings in words."""
        if self.loss is None:
            return "Agreement with ratings: unknown, since none was left out of training."
        taus = {"ratings": self.rating_tau, "outcomes": self.outcome_tau}
        known = [f"{tau:.2f} of {name}" for name, tau in taus.items() if tau is not None]
        return (
            f"Rank agreement (Kendall's tau): {' and '.join(known) or 'unknown'}; log loss "
            f"{self.loss:.3f}, on {self.held_out:,} out-of-bag ratings and outcomes."
        )


@final
@dataclass(frozen=True, eq=False)
class FitReport:
    """The outcome of a fit; losses are means per answer, cross-entropies in natural logarithms.

    Attributes:
        pairs: number of comparisons trained on, without pseudo-labels.
        members: `E`, the number of members.
        epochs: passes made.
        best_epoch: the epoch whose state the model keeps, from 1.
        train_loss: `[epochs]` loss of each member on its own bootstrap, mean over members.
        train_accuracy: `[epochs]` accuracy on decided answers, measured before the step that learns
            from them. For each answer, the members whose bootstraps hold it count.
        validation_loss: `[epochs]` mean over members on held-out comparisons, or else on each
            member's out-of-bag answers; NaN if there are neither.
            member's out-of-bag answers; NaN where there are neither.
        validation_accuracy: `[epochs]` accuracy on the same answers.
        decided: number of decided answers behind `validation_accuracy`.
        validated_on: which answers validated the fit: a "validation" set or "out-of-bag" answers;
            None if there are neither.
        penalty: strength of the weight penalty at the end.
        seconds: wall time.
        likelihood: noise and scale under which the model's probabilities fit answers that it was
            not trained on. Pass it to a `RewardFunction` of the model.
        trust: trust in each annotator, fitted to the same answers with that scale; empty if the
            annotators are unknown.
        ratings: how ratings and outcomes were fitted; None without any.
        chosen: name of this fit if it was chosen among several; None if there was no choice.
        alternatives: loss on unseen answers of each fit among which it was chosen, by name.
    """

    pairs: int
    members: int
    epochs: int
    best_epoch: int
    train_loss: FloatArray
    train_accuracy: FloatArray
    validation_loss: FloatArray
    validation_accuracy: FloatArray
    decided: int
    penalty: float
    seconds: float
    likelihood: Likelihood = field(default_factory=Likelihood)
    validated_on: Literal["validation", "out-of-bag"] | None = None
    trust: tuple[Trust, ...] = ()
    ratings: RatingFit | None = None
    chosen: str | None = None
    alternatives: Mapping[str, float] = field(default_factory=dict)

    @property
    def unseen_loss(self) -> float:
        """Validation loss of the epoch whose state the model keeps; NaN without any."""
        return float(self.validation_loss[self.best_epoch - 1])

    @property
    def trained_accuracy(self) -> float:
        """Training accuracy of the epoch whose state the model keeps."""
        return float(self.train_accuracy[self.best_epoch - 1])

    @property
    def held_out_accuracy(self) -> float | None:
        """Validation accuracy of the epoch whose state the model keeps; None without any."""
        return float(self.validation_accuracy[self.best_epoch - 1]) if self.decided else None

    @property
    def held_out_interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of `held_out_accuracy`."""
        estimate = self.estimate
        return None if estimate is None else estimate.interval

    @property
    def estimate(self) -> Estimate | None:
        """The accuracy on unseen answers with its interval, for the summary of a run."""
        accuracy = self.held_out_accuracy
        if accuracy is None:
            return None
        return Estimate.of_answers(accuracy, self.decided, f"{self.validated_on}")

    @property
    def held_out_in_words(self) -> str:
        """Return the accuracy on unseen answers in words, with its interval and their number."""
        accuracy = self.held_out_accuracy
        interval = self.held_out_interval
        if accuracy is None or interval is None:
            return "unknown, since no decided answer was left out"
        return share_in_words(accuracy, interval, self.decided, f"{self.validated_on} answers")

    def metrics(self) -> dict[str, float]:
        """Return numbers of the state that the model keeps, for a metric sink.

        Their names tell which answers they are about: `reward/train_accuracy`, and either
        `reward/validation_accuracy` or `reward/out_of_bag_accuracy`.
        """
        kept = self.best_epoch - 1
        values = {"train_loss": self.train_loss[kept], "train_accuracy": self.train_accuracy[kept]}
        if self.validated_on is not None:
            low, high = self.held_out_interval or (float("nan"), float("nan"))
            named = {"loss": self.validation_loss[kept], "accuracy": self.validation_accuracy[kept]}
            named |= {"accuracy_low": low, "accuracy_high": high, "answers": self.decided}
            of = self.validated_on.replace("-", "_")
            values |= {f"{of}_{name}": value for name, value in named.items()}
        values["seconds"] = self.seconds
        return {f"reward/{name}": float(value) for name, value in values.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the report as numbers, lists and None, for files."""
        about = asdict(self)
        for name, value in about.items():
            if isinstance(value, np.ndarray):
                about[name] = [round(float(v), 6) if np.isfinite(v) else None for v in value]
        return about


@final
@dataclass(frozen=True)
class Validation:
    """How well a fitted reward predicts answers that were held out of the fit.

    Attributes:
        answers: number of held-out answers, including ties.
        decided: number of decided answers among them.
        accuracy: share of decided answers that the members' mean predicts; None without any.
        loss: mean cross-entropy per answer under the fitted likelihood; None without any.
    """

    answers: int
    decided: int
    accuracy: float | None = None
    loss: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The accuracy's 95 % Wilson interval."""
        if self.accuracy is None:
            return None
        return wilson_interval(self.accuracy * self.decided, self.decided)
