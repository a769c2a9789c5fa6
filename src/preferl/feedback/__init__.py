"""Asking and answering: which pairs, when, and who answers (numpy only)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.feedback.answer_filter import AnswerFilter as AnswerFilter
    from preferl.feedback.instant import InstantFeedback as InstantFeedback
    from preferl.feedback.likelihood import Likelihood as Likelihood
    from preferl.feedback.likelihood import likelihood_of as likelihood_of
    from preferl.feedback.preparations import FitContext as FitContext
    from preferl.feedback.preparations import Preparation as Preparation
    from preferl.feedback.prompt import PromptTeacher as PromptTeacher
    from preferl.feedback.protocols import Feedback as Feedback
    from preferl.feedback.protocols import FeedbackInterrupted as FeedbackInterrupted
    from preferl.feedback.protocols import InputEndedError as InputEndedError
    from preferl.feedback.protocols import PairSampler as PairSampler
    from preferl.feedback.protocols import Teacher as Teacher
    from preferl.feedback.pseudo_labels import PseudoLabels as PseudoLabels
    from preferl.feedback.sampling import Acquisition as Acquisition
    from preferl.feedback.sampling import CoveringPairs as CoveringPairs
    from preferl.feedback.sampling import InformativePairs as InformativePairs
    from preferl.feedback.sampling import UniformPairs as UniformPairs
    from preferl.feedback.sampling import entropy as entropy
    from preferl.feedback.sampling import label_variance as label_variance
    from preferl.feedback.sampling import logit_variance as logit_variance
    from preferl.feedback.sampling import probability_variance as probability_variance
    from preferl.feedback.schedule import PlannedIteration as PlannedIteration
    from preferl.feedback.schedule import plan as plan
    from preferl.feedback.scripted import ScriptedTeacher as ScriptedTeacher
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
