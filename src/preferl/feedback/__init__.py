"""Asking and answering: which pairs, when, and who answers (numpy only)."""

from preferl.feedback.coverage import CoveringPairs, mean_observation
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.likelihood import HasLikelihood, Likelihood, likelihood_of
from preferl.feedback.prompt import PromptTeacher, sparklines
from preferl.feedback.protocols import (
    Feedback,
    FeedbackInterrupted,
    InputEndedError,
    LastingFeedback,
    PairSampler,
    Scorer,
    SingleAnswers,
    Teacher,
    WantsSegments,
)
from preferl.feedback.sampling import (
    Acquisition,
    InformativePairs,
    UniformPairs,
    entropy,
    label_variance,
    logit_variance,
    probability_variance,
    segments_wanted,
)
from preferl.feedback.schedule import (
    PlannedIteration,
    Schedule,
    apportion,
    constant,
    hyperbolic,
    inverse_quadratic,
    plan,
)
from preferl.feedback.scripted import ScriptedTeacher

__all__ = [
    "Acquisition",
    "CoveringPairs",
    "Feedback",
    "FeedbackInterrupted",
    "HasLikelihood",
    "InformativePairs",
    "InputEndedError",
    "InstantFeedback",
    "LastingFeedback",
    "Likelihood",
    "PairSampler",
    "PlannedIteration",
    "PromptTeacher",
    "Schedule",
    "Scorer",
    "ScriptedTeacher",
    "SingleAnswers",
    "Teacher",
    "UniformPairs",
    "WantsSegments",
    "apportion",
    "constant",
    "entropy",
    "hyperbolic",
    "inverse_quadratic",
    "label_variance",
    "likelihood_of",
    "logit_variance",
    "mean_observation",
    "plan",
    "probability_variance",
    "segments_wanted",
    "sparklines",
]
