"""The Preference Transformer: what every reward model must keep, and what it alone promises."""

import pytest
import torch
from gymnasium import spaces

from preferl.errors import ModelError
from preferl.functional import preference_logits, preference_loss
from preferl.models import PreferenceTransformer, PreferenceTransformerConfig, build_reward_model
from preferl.testing import check_reward_model

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))
HEADS = ["preference", "plain"]


def transformer(seed=0, **settings):
    config = PreferenceTransformerConfig(
        **{"width": 16, "preference_width": 12, "context": 8, **settings}
    )
    return PreferenceTransformer(OBSERVATIONS, ACTIONS, config, seed=seed)


def windows(rows=6, length=8):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(rows, length, 5, generator=generator)
    return features, torch.arange(length) >= torch.arange(rows)[:, None] % length


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"layers": 2, "head": "plain"},
        {"heads": 2, "positions": 20, "pooling": "sum", "activation": "gelu", "head": "plain"},
        {"pooling": "last", "normalise": False, "activation": "tanh"},
    ],
)
def test_every_shape_keeps_the_contract(settings):
    check_reward_model(transformer(**settings))


def test_size_of_the_published_model():
    boxes = [spaces.Box(-1, 1, (size,)) for size in (11, 3)]
    for head, count in (("preference", 1_182_977), ("plain", 1_084_161)):
        config = PreferenceTransformerConfig(head=head, positions=1000)
        model = build_reward_model(config, boxes[0], boxes[1], seed=0)
        assert sum(p.numel() for p in model.parameters()) == count


def test_shape_of_where_it_looks():
    looks = transformer(layers=2).attention(*windows())
    assert looks.layers.shape == (2, 6, 4, 16, 16)
    assert looks.preference is not None
    assert looks.preference.shape == (6, 8, 8)
    torch.testing.assert_close(looks.layers.sum(-1), torch.ones(2, 6, 4, 16))
    assert not looks.layers[..., range(15), range(1, 16)].any()  # no token sees the next
    torch.testing.assert_close(looks.layers[:, 0, :, 0, 0], torch.ones(2, 4))  # action, then state
    torch.testing.assert_close(looks.layers[:, 0, :, 1, :2].sum(-1), torch.ones(2, 4))
    assert transformer(head="plain").attention(*windows()).preference is None


@pytest.mark.parametrize(("head", "pooling"), [("preference", "mean"), ("plain", "last")])
def test_windows_of_padding_alone_have_no_score(head, pooling):
    model = transformer(head=head, pooling=pooling)
    output = model.judge(windows()[0], torch.zeros(6, 8, dtype=torch.bool))
    assert output.rewards.isfinite().all()
    assert not output.scores.any()
    output.scores.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("head", HEADS)
def test_half_precision_products_stay_near_and_results_are_float32(head):
    model = transformer(head=head, width=64, layers=2).eval()
    exact = model.judge(*windows())
    with torch.autocast("cpu", torch.bfloat16):
        output = model.judge(*windows())
    gradients = []
    for result in (exact, output):
        assert result.rewards.dtype == result.scores.dtype == torch.float32
        model.zero_grad()
        (result.scores * torch.arange(6)).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(output.rewards, exact.rewards, atol=0.05, rtol=0)
    torch.testing.assert_close(output.scores, exact.scores, atol=0.05, rtol=0)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99


def test_initial_weights_are_as_published():
    model = transformer(width=128, preference_width=128, positions=500)
    for layer, fan_in in ((model.blocks[0].attn.qkv, 128), (model.blocks[0].mlp.fc2, 512)):
        assert layer.weight.std().item() == pytest.approx(fan_in**-0.5, rel=0.02)
        assert layer.weight.abs().max() <= 2 * fan_in**-0.5 / 0.879
        assert not layer.bias.any()
    assert model.time_embed.weight.std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert model.time_embed.weight.shape == (501, 128)
    assert (model.final_norm.weight == 1).all()


@pytest.mark.parametrize(
    ("head", "precision"),
    [
        ("plain", torch.float32),
        pytest.param("preference", torch.bfloat16, marks=pytest.mark.slow),
    ],
)
def test_it_learns_what_depends_on_the_first_step(head, precision):
    """The first step says whether more is better or worse: by single steps one can but guess."""
    half = precision == torch.bfloat16
    model = transformer(head=head, width=32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def clips(pairs):
        features = torch.randn(2 * pairs, 8, 5)
        features[:, 1:, 0] = 0
        features[:, 0, 0] = features[:, 0, 0].sign()
        returns = features[:, 0, 0] * features[:, :, 1].sum(1)
        return features, (returns[::2] > returns[1::2]).float()

    def logits(features):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            scores = model.judge(features, torch.ones(features.shape[:2], dtype=torch.bool)).scores
        return preference_logits(scores.unflatten(1, (-1, 2)))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(100):
            features, preference = clips(64)
            optimiser.zero_grad()
            preference_loss(logits(features), preference).sum().backward()
            optimiser.step()
        features, preference = clips(500)
    model.eval()
    assert ((logits(features) > 0) == preference.bool()).float().mean() > 0.73


def test_rewards_alone_have_no_score():
    with pytest.raises(ModelError, match="scores of a PreferenceTransformer: expected features"):
        transformer().pool(torch.zeros(1, 2, 8), torch.ones(2, 8, dtype=torch.bool))


def test_windows_longer_than_the_time_table_are_refused():
    with pytest.raises(ModelError, match="steps per window: expected at most 8, got 9"):
        transformer().judge(torch.zeros(1, 9, 5), torch.ones(1, 9, dtype=torch.bool))
    longer = transformer(positions=9)
    assert longer.judge(torch.zeros(1, 9, 5), torch.ones(1, 9, dtype=torch.bool)).scores.isfinite()
