"""Asking and answering: which pairs to ask about, when, and who answers (numpy only)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.feedback.answer_filter import AnswerFilter as AnswerFilter
    from preferl.feedback.instant import InstantFeedback as InstantFeedback
    from preferl.feedback.likelihood import Likelihood as Likelihood, likelihood_of as likelihood_of
    from preferl.feedback.pair_sampling import (
        Acquisition as Acquisition,
        CoveringPairs as CoveringPairs,
        InformativePairs as InformativePairs,
        UniformPairs as UniformPairs,
        entropy as entropy,
        label_variance as label_variance,
        logit_variance as logit_variance,
        probability_variance as probability_variance,
    )
    from preferl.feedback.preparations import FitContext as FitContext, Preparation as Preparation
    from preferl.feedback.prompt import PromptTeacher as PromptTeacher
    from preferl.feedback.protocols import (
        Feedback as Feedback,
        FeedbackInterrupted as FeedbackInterrupted,
        InputEndedError as InputEndedError,
        PairSampler as PairSampler,
        Teacher as Teacher,
    )
    from preferl.feedback.pseudo_labels import PseudoLabels as PseudoLabels
    from preferl.feedback.schedule import PlannedIteration as PlannedIteration, plan as plan
    from preferl.feedback.scripted import ScriptedTeacher as ScriptedTeacher
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
