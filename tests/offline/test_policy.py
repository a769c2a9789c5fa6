"""Policies learned offline: how they act, and what is saved and exported."""

import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import MissingExtraError, SpaceError
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, OfflinePolicy

WIDE = spaces.Box(np.array([0.0, -3.0]), np.array([4.0, 3.0]), dtype=np.float64)
SEEN = spaces.Box(-np.inf, np.inf, (3,))
LAYER = {"weight_0": torch.zeros(2, 3), "bias_0": torch.zeros(2), "log_std": torch.zeros(2)}


@pytest.fixture(scope="module")
def policy():
    config = IQLConfig(hidden=(8, 8), batch_size=4)
    return IQL(SEEN, WIDE, config, seeds=[3], steps=1).policies()[0]


def by_hand(weight, bias, observations):
    unit = np.tanh(observations @ weight.T.numpy() + bias.numpy())
    return (unit + 1) / 2 * (WIDE.high - WIDE.low) + WIDE.low


def test_mean_actions_are_scaled_to_the_space(rng):
    weight = torch.tensor([[1.0, 0, 0], [0, -2.0, 0]])
    bias = torch.tensor([0.0, 0.5])
    parameters = {"weight_0": weight, "bias_0": bias, "log_std": torch.zeros(2)}
    policy = OfflinePolicy(SEEN, WIDE, parameters)
    observations = rng.normal(size=(6, 3))
    actions, state = policy.predict(observations, state="kept")
    expected = by_hand(weight, bias, observations)
    np.testing.assert_allclose(actions, expected, atol=1e-5)
    assert state == "kept"
    assert actions.dtype == np.float64
    single, _ = policy.predict(observations[2])
    np.testing.assert_allclose(single, expected[2], atol=1e-5)


def test_drawn_actions_spread_as_learned_and_stay_in_the_space():
    parameters = LAYER | {"log_std": torch.tensor([np.log(0.1), 9.0])}  # beyond the bound of 2
    policy = OfflinePolicy(SEEN, WIDE, parameters, seed=1)
    actions, _ = policy.predict(np.zeros((4000, 3)), deterministic=False)
    assert actions[:, 0].mean() == pytest.approx(2.0, abs=0.02)
    assert actions[:, 0].std() == pytest.approx(0.1 * 2, rel=0.05)  # half the width is 2
    assert actions.min() >= -3
    assert actions[:, 1].max() == 3
    again = OfflinePolicy(SEEN, WIDE, parameters, seed=1)
    assert (again.predict(np.zeros((4000, 3)), deterministic=False)[0] == actions).all()


def test_dictionaries_are_seen_whole():
    space = spaces.Dict({"b": spaces.Box(-1, 1, (1,)), "a": spaces.Dict({"x": SEEN})})
    config = CloningConfig(hidden=(8,), batch_size=4)
    policy = BehaviourCloning(space, WIDE, config, seeds=[0], steps=1).policies()[0]
    acted = policy.predict({"b": np.ones((5, 1)), "a": {"x": np.zeros((5, 3))}})[0]
    assert acted.shape == (5, 2)
    one = {"b": np.ones(1), "a": {"x": np.zeros(3)}}
    np.testing.assert_allclose(policy.predict(one)[0], acted[0], atol=1e-6)


def test_other_observations_are_refused(policy):
    with pytest.raises(SpaceError, match="expected 3 numbers"):
        policy.predict(np.zeros((2, 4)))
    with pytest.raises(SpaceError, match="spaces of a policy"):
        OfflinePolicy(spaces.Box(-1, 1, (5,)), WIDE, LAYER)


def test_what_is_saved_comes_back(policy, tmp_path):
    observations = np.random.default_rng(0).normal(size=(6, 3))
    policy.save(tmp_path / "policy")
    policy.save(tmp_path / "policy")  # replaces itself
    again = OfflinePolicy.load(tmp_path / "policy")
    assert (again.predict(observations)[0] == policy.predict(observations)[0]).all()
    assert again.learner == "IQL"
    assert again.observation_space == SEEN
    assert again.action_space == WIDE


def test_torchscript_acts_alike(policy, tmp_path):
    observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    policy.export_torchscript(tmp_path / "policy.pt")
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        script = torch.jit.load(str(tmp_path / "policy.pt"))
    with torch.no_grad():
        actions = script(torch.from_numpy(observations)).numpy()
    np.testing.assert_allclose(actions, policy.predict(observations)[0], atol=1e-5)


def test_onnx_errors_name_what_it_needs(policy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # as if it were not there
    with pytest.raises(MissingExtraError, match=r"pip install 'preferl\[onnx\]'"):
        policy.export_onnx(tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


@pytest.mark.slow
def test_onnx_acts_alike(policy, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    policy.export_onnx(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    (actions,) = session.run(["actions"], {"observations": observations})
    np.testing.assert_allclose(actions, policy.predict(observations)[0], atol=1e-5)
