"""The forward pass of a Decision Transformer: Hugging Face's, causal, blind to padding."""

from dataclasses import replace

import pytest
import torch

from helpers.installed import needs
from preferl.offline.decision_transformer.tokens import drop, predict_actions
from preferl.offline.learner_configs import TokenShape

pytestmark = needs("transformers")

STEPS = 6


@pytest.fixture(scope="module")
def model():
    from preferl.offline.decision_transformer import hugging_face

    return hugging_face.build_model(
        0, state_dim=3, act_dim=2, hidden_size=16, n_layer=3, n_head=2, max_ep_len=50
    ).eval()


SHAPE = TokenShape(layers=3, heads=2, squashed=True)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(4, STEPS)
    mask[0, :2] = 0
    mask[1, :5] = 0
    return {
        "states": torch.randn(4, STEPS, 3, generator=generator),
        "actions": torch.randn(4, STEPS, 2, generator=generator),
        "rewards": torch.randn(4, STEPS, 1, generator=generator),
        "returns_to_go": torch.randn(4, STEPS, 1, generator=generator),
        "timesteps": torch.arange(STEPS).repeat(4, 1),
        "attention_mask": mask,
    }


def test_actions_are_those_of_hugging_face(model, batch):
    from preferl.offline.decision_transformer.hugging_face import plain_actions

    with torch.no_grad():
        theirs = plain_actions(model, batch)
        ours = predict_actions(dict(model.named_parameters()), SHAPE, batch, training=False)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-6, rtol=1e-5)


def test_the_last_action_alone_is_the_last_of_all(model, batch):
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        every = predict_actions(parameters, SHAPE, batch, training=False)
        last = predict_actions(parameters, SHAPE, batch, last=True)[:, -1]
    torch.testing.assert_close(last, every[:, -1], atol=1e-6, rtol=1e-5)


def test_every_parameter_that_is_used_gets_a_gradient(model, batch):
    trained = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    predict_actions(
        trained, replace(SHAPE, dropout=0.1), batch, training=True
    ).square().sum().backward()
    idle = {name for name, p in trained.items() if p.grad is None}
    assert {name.split(".weight")[0].split(".bias")[0] for name in idle} == {
        "predict_state",
        "predict_return",
        "encoder.wte",
    }


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    kept = drop(torch.ones(1001, 333), 0.1)  # not a multiple of four
    assert (kept == 0).double().mean().item() == pytest.approx(0.1, abs=0.002)
    assert kept.mean().item() == pytest.approx(1, abs=0.002)
    assert len(kept.unique()) == 2
    neighbours = (kept[:, 1:] == 0) & (kept[:, :-1] == 0)
    assert neighbours.double().mean().item() == pytest.approx(0.01, abs=0.001)


def test_attention_with_dropout_is_the_same_but_for_what_is_dropped(model, batch):
    parameters = dict(model.named_parameters())
    nearly_none = replace(SHAPE, dropout=1e-9)  # less than there are levels: nothing is dropped
    with torch.no_grad():
        expected = predict_actions(parameters, SHAPE, batch, training=False)
        got = predict_actions(parameters, nearly_none, batch, training=True)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
