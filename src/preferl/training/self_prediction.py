"""Trains a reward's hidden layers, without any answers, to predict those of the next step.

Metcalf et al. 2023, "Sample-Efficient Preference-based Reinforcement Learning with Dynamics Aware
Rewards" (REED), section 4, with the loss of Chen and He 2021 (SimSiam).
"""

import numpy as np
import torch
import torch.nn.functional as F

from preferl.data.episodes import Episodes
from preferl.errors import DataError, ModelError, require_in
from preferl.models.base import RewardModel
from preferl.models.mlp import MLPReward
from preferl.shapes import FloatArray
from preferl.training.batches import steps_for


def predict_next_steps(
    model: RewardModel,
    episodes: Episodes,
    *,
    seed: int,
    updates: int = 500,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
) -> FloatArray:
    """Train a perceptron so that the hidden layers of a step predict those of the next step.

    This needs no answers, so all experience counts, also experience that nobody was asked about.
    The loss is minus the cosine between two vectors: the units of the next step, which get no
    gradient, and a linear map of the units of this step. Afterwards, fit the answers with
    `RewardTrainer`.

    The paper has a state encoder and an action encoder. Here they are one perceptron. If the reward
    sees actions, the units of the next step therefore depend on the next action, too. The paper
    continues with this loss between its fits; here it comes before them.

    Args:
        model: an `MLPReward` with hidden layers, trained in place. Its input statistics are set
            from all steps. A later fit sets them again, from the compared clips.
        episodes: experience; only observations and actions are read.
        seed: seed of the linear maps and minibatches.
        updates: steps of Adam.
        batch_size: steps of the environment per update.
        learning_rate: learning rate of Adam.

    Returns:
        `[updates]` loss before each update, mean over members, in [-1, 1].

    Raises:
        ConfigError: there is less than one update, or the batch is empty.
        DataError: no step is followed by another one.
        ModelError: the model has no such hidden layers.
    """
    require_in("updates", updates, 1, float("inf"))
    require_in("batch_size", batch_size, 1, float("inf"))
    if not isinstance(model, MLPReward) or not model.config.hidden:
        raise ModelError(
            f"model: expected an MLPReward with hidden layers, got {type(model).__name__}."
        )
    ends = np.cumsum(episodes.lengths) - 1
    steps = torch.from_numpy(np.setdiff1d(np.arange(len(episodes.rewards)), ends))
    if not len(steps):
        raise DataError(
            "episodes: expected at least one of two steps or more, got only shorter ones."
        )
    inputs = steps_for(model.encoder, episodes.observations, episodes.actions, model.device)
    model.encoder.observe(*inputs)
    features = model.encoder(*inputs)
    generator = torch.Generator().manual_seed(seed)
    units = model.config.hidden[-1]
    predictor = torch.randn(model.members, units, units, generator=generator) / units**0.5
    predictor = predictor.to(model.device).requires_grad_()
    optimiser = torch.optim.Adam([*model.networks.parameters(), predictor], lr=learning_rate)
    losses = []
    for _ in range(updates):
        rows = steps[torch.randint(len(steps), (batch_size,), generator=generator)]
        predicted = model.networks.encode(features[rows]) @ predictor  # [E, B, units]
        with torch.no_grad():
            following = model.networks.encode(features[rows + 1])
        loss = -F.cosine_similarity(predicted, following, dim=-1).mean(1)  # [E]
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        losses.append(float(loss.detach().mean()))
    return np.array(losses)
