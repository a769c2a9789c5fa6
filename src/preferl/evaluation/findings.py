"""Findings about a run's numbers: what is probably wrong, why it matters, and what to try."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.content import segment_ids
from preferl.data.segments import Segments
from preferl.runs.summary import Finding
from preferl.shapes import Array, FloatArray, IntArray, leaves
from preferl.statistics import share_in_words, wilson_interval

LEAST_DECIDED: Final = 60
"""Fewest decided unseen answers for a finding.

With 60, the interval is 25 percentage points wide.
"""

ACCURATE: Final = 0.85
"""Accuracy above which a reward counts as right about most clips."""

NOISY: Final = 0.3
"""Fitted label noise above which answers count as noisy. Half of the random answers are wrong."""

CONTRADICTED: Final = 0.25
"""Share of pairs with both answers above which it counts as high; noise of 0.3 causes as many."""

UNSURE: Final = 0.6
"""Entropy of predicted preferences in nats.

Guessing has 0.69, and a probability of 70 % has 0.6.
"""

LEAST_ANSWERS: Final = 20
"""Fewest answers for a finding about ties."""

AGREED: Final = 0.3
"""Members agree if their log-odds deviate by less: at most 0.07 in probability."""

LEAST_EVALUATIONS: Final = 4
"""Fewest evaluations for a finding about a flat curve."""


class Course(NamedTuple):
    """A run's numbers after each of its `I` iterations, `[I]` each; NaN where unknown.

    Attributes:
        steps: environment steps so far.
        answers: answers kept so far.
        accuracy: accuracy of the fit on decided answers that it did not use.
        decided: number of these answers.
        true_return: mean environment return of an evaluation in the iteration.
        low, high: the ends of the return's 95 % interval.
        noise: label noise, fitted to answers that the reward was not trained on.
        query_entropy, query_deviation: uncertainty about new queries; see `IterationReport`.
        ties: share of ties among the answers; NaN also in an iteration without queries.
        contradicted: among pairs with several answers, the share that was answered both ways.
        total: the environment steps of the whole run, a single number.
    """

    steps: FloatArray
    answers: FloatArray
    accuracy: FloatArray
    decided: FloatArray
    true_return: FloatArray
    low: FloatArray
    high: FloatArray
    noise: FloatArray
    query_entropy: FloatArray
    query_deviation: FloatArray
    ties: FloatArray
    contradicted: FloatArray
    total: float


def findings(course: Course) -> tuple[Finding, ...]:
    """List the findings about a run by its newest numbers; empty if nothing seems wrong."""
    found = (find_one(course) for find_one in FINDERS)
    return tuple(finding for finding in found if finding is not None)


def ties_and_contradictions(comparisons: Comparisons | None) -> tuple[float, float]:
    """Return the share of ties among answers, and of pairs answered both ways among repeated ones.

    Two pairs are the same if their clips have the same steps, in either order, since feedback may
    contain a clip several times. If there are no pairs, the share is NaN.

    >>> from preferl.data.segments import Segments
    >>> steps = np.arange(2.0)[:, None]
    >>> clips = Segments(steps, steps, np.zeros(2), np.arange(2), np.ones(2, int), 1)
    >>> pairs, preference = np.array([[0, 1], [1, 0], [0, 1]]), np.array([1.0, 1.0, 0.5])
    >>> ties, contradicted = ties_and_contradictions(Comparisons.of(clips, pairs, preference))
    >>> round(ties, 2), contradicted
    (0.33, 1.0)
    """
    if comparisons is None or not comparisons.answered.any():
        return np.nan, np.nan
    decided = comparisons.decided
    preference = comparisons.preference
    ties = float((preference[comparisons.answered] == 0.5).mean())
    pairs = _clip_numbers(comparisons.segments)[comparisons.pairs[decided]]
    first_won = preference[decided] > 0.5
    of_pair = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    lower_won = (
        pairs[:, 0] < pairs[:, 1]
    ) == first_won  # whether the clip with the lower number won
    count = np.bincount(of_pair)
    for_lower = np.bincount(of_pair, lower_won)
    is_repeated = count > 1
    is_contradicted = is_repeated & (for_lower > 0) & (for_lower < count)
    return ties, float(is_contradicted.sum() / is_repeated.sum()) if is_repeated.any() else np.nan


def _clip_numbers(segments: Segments) -> IntArray:
    """Return `[N]` numbers, which are equal for clips with the same steps.

    Observations may be pictures on disk, so they are read only if actions and rewards are equal.
    """
    numbers, count = _numbered(segments, segments.actions, segments.rewards)
    undecided = np.flatnonzero(count[numbers] > 1)
    if len(undecided):
        similar = segments.select(undecided)
        numbers_within, _ = _numbered(
            similar, similar.actions, similar.rewards, *leaves(similar.observations)
        )
        numbers[undecided] = len(count) + numbers_within
    return numbers


def _numbered(segments: Segments, *columns: Array) -> tuple[IntArray, IntArray]:
    """Number clips `[N]` by their content in `columns`, and count the clips of each number."""
    names = segment_ids(segments, columns)
    return np.unique(names, return_inverse=True, return_counts=True)[1:]


def _at_chance(course: Course) -> Finding | None:
    fits = np.flatnonzero(~np.isnan(course.accuracy + course.decided))
    if len(fits) < 2:
        return None
    share = float(course.accuracy[fits[-1]])
    decided = int(course.decided[fits[-1]])
    # A reward that predicts 0.5 counts as half right.
    low, high = interval = wilson_interval(round(2 * share * decided) / 2, decided)
    if decided < LEAST_DECIDED or not low <= 0.5 <= high:
        return None
    words = share_in_words(share, interval, decided, "answers that it was not fitted to")
    return Finding(
        "at_chance",
        f"The reward predicts {words}, as if it guessed. An agent that learns from such a reward "
        "does not learn what the answers say.",
        (
            "answer twenty pairs yourself and compare: the teacher may answer at random, or the "
            "wrong way round",
            "show longer clips (segment_length): these may be too short to tell apart",
            "give the reward what people see: the observations may lack it",
            "fit more strongly: more epochs, a larger learning rate, a wider model",
        ),
    )


def _parting(course: Course) -> Finding | None:
    rows = np.flatnonzero(~np.isnan(course.true_return))
    if len(rows) < 3:
        return None
    returns, low, high, steps = (
        column[rows] for column in (course.true_return, course.low, course.high, course.steps)
    )
    accurate = _carried(course.accuracy)[rows] >= ACCURATE
    fell = (returns[:-2] > returns[1:-1]) & (returns[1:-1] > returns[2:])
    fell &= accurate[1:-1] & accurate[2:]
    # The return fell by more than the intervals, and has not recovered since.
    fell &= (high[2:] < low[:-2]) & (returns[-1] < low[:-2])
    if not fell.any():
        return None
    peak = int(fell.argmax())
    return Finding(
        "parting",
        f"The true return fell from {_number(returns[peak])} at {steps[peak]:,.0f} steps to "
        f"{_number(returns[peak + 2])} at {steps[peak + 2]:,.0f} steps, and is "
        f"{_number(returns[-1])} now, while the reward predicts "
        f"{100 * _last(course.accuracy):.0f} % of unseen answers. The agent earns learned reward "
        "by behaviour that people would not prefer, or that no answer was about.",
        (
            "watch the clips: the agent may exploit an error of the reward, or answers may be "
            "reversed",
            'ask more about what the agent does now (more iterations, schedule="constant", a '
            "smaller buffer_steps)",
            "take actions out of the reward (use_actions=False)",
            "be careful where members disagree (several members with pessimism)",
        ),
    )


def _exhausted(course: Course) -> Finding | None:
    if not len(course.steps) or np.isnan(course.answers[-1]):
        return None
    rounds_with_answers = np.flatnonzero(np.diff(course.answers, prepend=0) > 0)
    since = float(course.steps[rounds_with_answers[-1]]) if len(rounds_with_answers) else 0.0
    # That a run has asked all of its queries is not a finding.
    had_queries = (
        not len(rounds_with_answers)
        or not np.isnan(course.ties[rounds_with_answers[-1] + 1 :]).all()
    )
    if not had_queries or 3 * (course.steps[-1] - since) < course.total:
        return None
    return Finding(
        "exhausted",
        f"There are no new answers since step {since:,.0f}, although there were queries; the run "
        f"has {course.total:,.0f} steps, and {course.answers[-1]:,.0f} answers in all. The agent "
        "has changed since, and nothing tells the reward about what it does now.",
        (
            "where people answer: see whether they still do, and whether the project's budget of "
            "answers is used up",
            "give people time: let the run wait for their answers (patience)",
            "where a script answers: see why it declines",
            "spread the same answers over the run: more iterations, a smaller initial_fraction, "
            'schedule="constant"',
        ),
    )


def _contradictory(course: Course) -> Finding | None:
    noise = _last(course.noise)
    contradicted = _last(course.contradicted)
    evidence = []
    if noise > NOISY:
        evidence.append(f"the fit takes {100 * noise:.0f} % of the answers to be random")
    if contradicted > CONTRADICTED:
        evidence.append(
            f"{100 * contradicted:.0f} % of the pairs with several answers were answered both ways"
        )
    if not evidence:
        return None
    return Finding(
        "contradictory",
        f"Answers contradict one another: {', and '.join(evidence)}. The reward then needs several "
        "times as many answers for the same accuracy.",
        (
            "read the question again: it may be understood in two ways",
            "compare people with one another (preferl annotate report), and leave out who guesses",
            "let people decline, or call a tie, where they cannot tell",
            "ask for more answers, and let more than one person answer a pair",
        ),
    )


def _too_alike(course: Course) -> Finding | None:
    entropy, noise, ties = (
        _last(column) for column in (course.query_entropy, course.noise, course.ties)
    )
    if ties > 0.5 and not _last(course.answers) < LEAST_ANSWERS:
        evidence = f"{100 * ties:.0f} % of the answers are ties"
    elif entropy > UNSURE and noise > NOISY:
        evidence = (
            f"predicted preferences of new queries have an entropy of {entropy:.2f} nats, where "
        )
        evidence += (
            f"guessing has 0.69, and the fit takes {100 * noise:.0f} % of the answers to be "
        )
        evidence += "random"
    else:
        return None
    return Finding(
        "too_alike",
        f"The clips of a pair differ too little to prefer one: {evidence}. Such answers hardly "
        "teach the reward anything.",
        (
            "show longer clips (segment_length)",
            "compare clips of more different behaviour: more exploration (exploration_fraction, "
            "initial_steps), a larger buffer_steps",
            'choose pairs that differ (sampler="informative", or "covering")',
        ),
    )


def _stuck(course: Course) -> Finding | None:
    """Find an agent that never improved on its first evaluation.

    This does not find an agent that improved and then stalled. Its numbers are like those of an
    agent that has converged: flat evaluations, and members that agree. Learned rewards do not show
    the difference either, since an agent that stalls may never have seen anything better.
    """
    evaluated = ~np.isnan(course.true_return)
    returns, low, high = (c[evaluated] for c in (course.true_return, course.low, course.high))
    deviation = _last(course.query_deviation)
    # An environment without a reward gives returns that are always 0.
    if len(returns) < LEAST_EVALUATIONS or not returns.any() or not deviation < AGREED:
        return None
    if not ((low[1:] <= high[0]) & (high[1:] >= low[0])).all():
        return None
    return Finding(
        "stuck",
        f"The agent is where it began: {len(returns)} evaluations, from {_number(returns[0])} to "
        f"{_number(returns[-1])}, do not differ by more than their intervals, and the members "
        f"agree on new queries (their log-odds deviate by {deviation:.2f}). More answers about the "
        "same behaviour teach the reward nothing new.",
        (
            "train an agent on the true reward with the same settings; if it is stuck as well, "
            "change the algorithm or take more steps",
            "explore more (exploration_fraction, initial_steps), so that clips show something else",
            "show longer clips (segment_length)",
        ),
    )


FINDERS: Final[tuple[Callable[[Course], Finding | None], ...]] = (
    *(_at_chance, _parting, _exhausted),
    *(_contradictory, _too_alike, _stuck),
)
"""One function for each finding, in the order of the list."""


def _carried(column: FloatArray) -> FloatArray:
    """Return the column `[I]` with each NaN replaced by the last number before it, if any."""
    rows = np.maximum.accumulate(np.where(np.isnan(column), 0, np.arange(len(column))))
    return np.asarray(column[rows])


def _last(column: FloatArray) -> float:
    """Return the newest known value; NaN if there is none."""
    numbers = column[~np.isnan(column)]
    return float(numbers[-1]) if len(numbers) else np.nan


def _number(value: float) -> str:
    return f"{value:,.{1 if abs(value) >= 10 else 2}f}"
