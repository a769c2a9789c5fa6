"""The contract of reward models passes what keeps it and reports in words what does not."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from preferl.errors import ModelError
from preferl.functional import pool
from preferl.models import MLPReward, MLPRewardConfig, RewardModel, RewardOutput, VectorEncoder
from preferl.testing import CountingModel, check_reward_model

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Discrete(2)


class Linear(RewardModel):
    """Keeps the contract; the classes below each break it in one way."""

    def __init__(self, context=1, encoder=None):
        super().__init__(
            encoder or VectorEncoder(OBSERVATIONS, ACTIONS), context=context, members=2
        )
        self.weight = nn.Parameter(torch.linspace(-1, 1, 10).view(2, 5))

    def rewards(self, features, mask):
        return torch.einsum("blf,ef->ebl", features, self.weight)

    def judge(self, features, mask):
        rewards = self.rewards(features, mask)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def pool(self, rewards, mask):
        return pool(rewards, mask)


class Recent(Linear):
    """The mean of the real steps so far, as a model with context may."""

    def rewards(self, features, mask):
        real = super().rewards(features, mask) * mask
        return real.cumsum(-1) / mask.cumsum(-1).clamp(min=1)


class SharesTheBatch(Linear):
    def rewards(self, features, mask):
        return super().rewards(features - features.mean(0, keepdim=True), mask)


class SeesTheFuture(Linear):
    def rewards(self, features, mask):
        return super().rewards(features, mask).flip(-1).cumsum(-1).flip(-1)


class SeesPadding(Recent):
    def rewards(self, features, mask):
        return Linear.rewards(self, features, mask).cumsum(-1)


class CountsPlaces(Linear):
    """Its first place stands for time 0 even if that is padding."""

    def rewards(self, features, mask):
        return super().rewards(features, mask) * torch.arange(1.0, 1 + mask.shape[1])


class WithoutMembers(Linear):
    def judge(self, features, mask):
        rewards = self.rewards(features, mask)[0]
        return RewardOutput(rewards, self.pool(rewards, mask))


class PoolsOtherwise(Linear):
    def judge(self, features, mask):
        rewards = self.rewards(features, mask)
        return RewardOutput(rewards, pool(rewards, mask, "mean"))


class HasIdleWeights(Linear):
    def __init__(self):
        super().__init__()
        self.idle = nn.Parameter(torch.ones(3))


class DividesByNothing(Linear):
    """The slope of a root at 0, where the mask is false, is infinite."""

    def rewards(self, features, mask):
        return (super().rewards(features, mask).abs() * mask).sqrt()


class RollsDice(Linear):
    def rewards(self, features, mask):
        return super().rewards(features, mask) + torch.rand(())


class SometimesInfinite(Linear):
    def rewards(self, features, mask):
        return super().rewards(features, mask) / 0


class Learning(VectorEncoder):
    def __init__(self):
        super().__init__(OBSERVATIONS, ACTIONS)
        self.scale = nn.Parameter(torch.ones(5))


class Gathering(VectorEncoder):
    def observe(self, observations, actions):
        self.mean += 0.1 * (observations.mean() - self.mean)


class Uncopyable(Linear):
    def __deepcopy__(self, memo):
        raise TypeError("locked")


class Forgetful(Linear):
    scale = 1.0

    def __deepcopy__(self, memo):
        copy = Linear()
        copy.load_state_dict(self.state_dict())
        copy.weight.data = copy.weight.data.abs().sqrt()
        return copy if hasattr(self, "copied") else self.mark()

    def mark(self):
        self.copied = True
        return self


@pytest.mark.parametrize(
    "model",
    [
        Linear(),
        Linear(context=4),
        Recent(context=5),
        Recent(context=50),
        CountingModel(Linear()),
        MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(members=2, dropout=0.3), seed=0),
    ],
)
def test_models_that_keep_the_contract_pass(model):
    check_reward_model(model)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (SharesTheBatch(), "compared with one window at a time"),
        (SeesTheFuture(), "earlier steps after the last step was changed"),
        (Recent(), "context 1 after an earlier step was changed"),
        (SeesPadding(context=4), "what stands where the mask is false was changed"),
        (CountsPlaces(context=4), "windows were padded on the left"),
        (WithoutMembers(), r"expected \(2, 5, 6\), members first, got \(5, 6\)"),
        (PoolsOtherwise(), "scores by `pool`"),
        (HasIdleWeights(), "gradient of idle: expected numbers, got nothing"),
        (DividesByNothing(), "gradient of .*finite"),
        (RollsDice(), "same windows in eval mode"),
        (SometimesInfinite(), "rewards: expected finite"),
        (Linear(encoder=Learning()), r"parameters of its encoder: expected none, got \['scale'\]"),
        (Linear(encoder=Gathering(OBSERVATIONS, ACTIONS)), "observing the same again"),
        (Linear(context=0), "context: expected a whole number of at least 1, got 0"),
        (Uncopyable(), "deepcopy: expected a copy, got locked"),
        (Forgetful(), "output of a copy"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, RewardModel) else "",
)
def test_what_breaks_the_contract_is_reported_in_words(model, words):
    with pytest.raises(ModelError, match=words) as caught:
        check_reward_model(model)
    assert str(caught.value).startswith(f"{type(model).__name__}: ")


def test_the_model_is_left_as_it_was():
    model = MLPReward(OBSERVATIONS, ACTIONS, seed=0).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_reward_model(model)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
