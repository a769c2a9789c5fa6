"""Inverse preference learning: its critics' loss by hand, and against its controls."""

import pytest
import torch
import torch.nn.functional as F

from helpers.point_agents import SPACES
from preferl.errors import DataError
from preferl.offline import Transitions
from preferl.offline.ipl import IPL
from preferl.offline.learner_configs import IPLConfig
from preferl.offline.transitions import ActionScale, Minibatches
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import PUSH_SPACE

SMALL = IPLConfig(hidden=(16, 12), batch_size=32, pairs=6, regulariser=0.3)


def run(parameters, number, x):
    """Network `number` of several, on `[..., in]`."""
    layers = [parameters[f"{kind}_{k}"][number] for k in range(3) for kind in ("weight", "bias")]
    x = torch.relu(x @ layers[0] + layers[1])
    x = torch.relu(x @ layers[2] + layers[3])
    return (x @ layers[4].T + layers[5][:, 0])[..., 0]


def test_segments_of_one_step_imply_nothing_and_are_refused(rng):
    agents = IPL(*SPACES, SMALL, seeds=[0], steps=5)
    with pytest.raises(DataError, match="steps of a segment: expected at least 2"):
        agents.set_answers(make_comparisons(rng, length=1))


def test_the_loss_of_the_critics_by_hand(rng):
    comparisons = make_comparisons(rng)
    steps = Transitions.of(make_episodes(rng, [40, 30]))
    agents = IPL(*SPACES, SMALL, seeds=[3, 4], steps=20)
    agents.set_answers(comparisons)
    agents.fit(steps, 5)
    batch = agents._batch(Minibatches(steps, ActionScale.of(PUSH_SPACE), agents.seeds, 32))
    pairs = batch.compared
    q_values = agents._q_values(agents._critics, batch)
    with torch.no_grad():
        following = agents._values.forward(batch.states[:, 1])[:, 0]
        found = agents._critic_loss(batch, q_values, following)["critic_loss"]
        for agent in (0, 1):
            expected = 0.0
            for critic in (agent, agent + 2):
                sums = []
                squares = []
                for k in range(12):  # segments
                    at = slice(5 * k, 5 * k + 5)
                    s = pairs.states[agent, at]
                    a = pairs.actions[agent, at]
                    real = pairs.mask[agent].flatten(0, 1)[k]
                    q = run(agents._critics.parameters, critic, torch.cat([s, a], 1))
                    v = run(agents._values.parameters, agent, s)
                    implied = [
                        q[t] - 0.99 * v[t + 1] for t in range(4) if real[t]
                    ]  # the last step is not followed by one of the segment
                    sums.append(sum(implied))
                    squares += [one**2 for one in implied]
                fit = [
                    F.binary_cross_entropy_with_logits(sums[2 * k] - sums[2 * k + 1], p)
                    for k, p in enumerate(pairs.preference[agent])
                ]
                of_data = (
                    q_values[critic // 2, agent] - 0.99 * batch.continues[agent] * following[agent]
                )
                size = of_data.square().mean() / 2 + sum(squares) / len(squares) / 2
                expected += sum(fit) / len(fit) + 0.3 * size
            assert float(found[agent]) == pytest.approx(float(expected), rel=1e-4)
