"""Decision Transformers on the hub: pushed whole, and loaded by preferl and by transformers."""

import json
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.installed import needs
from helpers.local_hub import TOKEN, on_this_machine
from preferl.errors import CheckpointError, ConfigError, SpaceError, StorageError
from preferl.evaluation import evaluate_policy
from preferl.offline import (
    DecisionTransformer,
    DecisionTransformerPolicy,
    DTConfig,
    load_decision_transformer,
)
from preferl.testing import PointWorld, make_episodes

transformers = pytest.importorskip("transformers")
pytest.importorskip("huggingface_hub")

# How huggingface_hub uploads files is its own affair.
pytestmark = [
    needs("accelerate"),
    pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning"),
]

WORLD = PointWorld()
SPACES = WORLD.observation_space, WORLD.action_space
CONFIG = DTConfig(context=4, width=16, layers=1, batch_size=8, horizon=20)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with on_this_machine(monkeypatch, tmp_path / "cache") as running:
        yield running


def learned(steps=3, config=CONFIG, **how):
    agent = DecisionTransformer(*SPACES, config, seed=0, steps=steps)
    agent.fit(agent.sequences(make_episodes(np.random.default_rng(0), [20] * 30)), **how)
    return agent


@pytest.fixture(scope="module")
def policy():
    return learned().policy("q0.9")


def actions_of(policy, steps=6):
    state = None
    done = []
    rng = np.random.default_rng(1)
    for _ in range(steps):
        actions, state = policy.predict(rng.uniform(-1, 1, (3, 2)), state)
        policy.earned(state, rng.normal(size=3))
        done.append(actions)
    return np.stack(done)


def test_a_pushed_policy_is_whole(hub, policy):
    address = policy.push_to_hub("me/dt", private=True)
    assert address.endswith("/me/dt")
    assert hub.private["me/dt"]
    files = hub.repositories["me/dt"]
    assert set(files) == {".gitattributes", "README.md"} | {
        *("config.json", "model.safetensors", "policy.json", "policy.safetensors")
    }
    again = DecisionTransformerPolicy.load("hub:me/dt")
    np.testing.assert_array_equal(actions_of(again), actions_of(policy))
    assert again.target == policy.target
    assert (again.observation_space, again.action_space) == SPACES
    for name in ("mean", "deviation", "scale", "quantiles", "longest", "horizon", "context"):
        one = getattr(again.statistics, name)
        two = getattr(policy.statistics, name)
        np.testing.assert_array_equal(one, two)


def test_transformers_loads_what_was_pushed(hub, policy, tmp_path):
    policy.push_to_hub("me/dt")
    model, found = transformers.DecisionTransformerModel.from_pretrained(
        "me/dt", cache_dir=tmp_path / "theirs", output_loading_info=True
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert (model.config.state_dim, model.config.act_dim) == (2, 2)
    for name, parameter in model.named_parameters():
        assert parameter.equal(policy.learned.parameters[name]), name


def test_training_pushes_a_policy_that_can_be_used(hub, tmp_path):
    options = {"push_to_hub": True, "hub_model_id": "me/trained", "hub_token": TOKEN}
    agent = learned(4, folder=tmp_path / "run", checkpoint_every=2, options=options)
    messages = [commit["summary"] for commit in hub.commits]
    assert messages == ["Training under way", "Training under way", "Training done"]
    assert not [name for name in hub.repositories["me/trained"] if name.endswith(".bin")]
    again = DecisionTransformerPolicy.load("hub:me/trained")
    np.testing.assert_array_equal(actions_of(again), actions_of(agent.policy()))


def test_a_hub_that_is_away_ends_no_training(hub, tmp_path, caplog):
    hub.failing = True
    agent = DecisionTransformer(*SPACES, CONFIG, seed=0, steps=4)
    data = agent.sequences(make_episodes(np.random.default_rng(0), [20] * 30))
    options = {"push_to_hub": True, "hub_model_id": "me/dt"}
    with pytest.raises(StorageError, match="me/dt on the hub"):
        agent.fit(data, folder=tmp_path / "run", checkpoint_every=2, options=options)
    assert caplog.text.count("Not pushed this time") == 2
    hub.failing = False
    agent.policy().push_to_hub("me/dt")  # what was learned is there
    assert "model.safetensors" in hub.repositories["me/dt"]


def test_pushing_needs_a_token(hub, policy):
    with pytest.raises(StorageError, match="hf auth login"):
        policy.push_to_hub("me/dt", token="hf_wrong")
    assert not hub.repositories


def test_the_card_names_what_is_known_and_what_is_not(hub, policy):
    policy.push_to_hub("me/dt")
    card = hub.repositories["me/dt"]["README.md"].decode()
    assert "No licence was chosen" in card
    assert "has not evaluated it" in card
    report = evaluate_policy(policy, PointWorld, episodes=3, seed=0, max_steps=5)
    policy.push_to_hub("me/dt", env="Point-v0", report=report, data="30 episodes", licence="mit")
    card = hub.repositories["me/dt"]["README.md"].decode()
    about = pytest.importorskip("yaml").safe_load(card.split("---")[1])
    assert about["license"] == "mit"
    (result,) = about["model-index"][0]["results"]
    assert result["dataset"]["name"] == "Point-v0"
    assert result["metrics"][0]["value"] == f"{report.mean:.2f} +/- {report.std:.2f}"
    assert f"mean return {report.mean:.2f}" in card
    assert "30 episodes" in card


@pytest.mark.parametrize("name", ["hub:me/absent", "hub:me/dt@none", "hub:not a name"])
def test_what_is_not_on_the_hub_is_an_error(hub, name):
    with pytest.raises(CheckpointError, match="hub:"):
        DecisionTransformerPolicy.load(name)


def tutorials_folder(path, kind="safetensors", **changes):
    """A model as the tutorial saves it, with names of its own time."""
    config = transformers.DecisionTransformerConfig(
        state_dim=3, act_dim=2, hidden_size=16, max_ep_len=30, n_layer=2, n_head=1, **changes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = transformers.DecisionTransformerModel(config).eval()
    model.save_pretrained(path)
    if kind == "bin":
        (path / "model.safetensors").unlink()
        state = dict(model.state_dict())
        state["encoder.h.0.attn.masked_bias"] = torch.tensor(-1e4)  # of transformers 4
        torch.save(state, path / "pytorch_model.bin")
    return model


STATES = spaces.Box(-np.inf, np.inf, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))
STATISTICS = {"mean": np.array([1.0, 2.0, -1.0]), "deviation": np.array([2.0, 0.5, 1.0])}


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_models_of_the_tutorials_layout_act_as_transformers_has_them(tmp_path, rng, kind):
    model = tutorials_folder(tmp_path / "theirs", kind)
    policy = load_decision_transformer(
        tmp_path / "theirs", STATES, ACTIONS, **STATISTICS, target=3_600, scale=1000.0, context=5
    )
    seen = rng.normal(size=(1, 3))
    states = (seen - STATISTICS["mean"]) / STATISTICS["deviation"]
    with torch.no_grad():
        expected = model(
            states=torch.tensor(states[None], dtype=torch.float32),
            actions=torch.full((1, 1, 2), -10.0),
            returns_to_go=torch.full((1, 1, 1), 3.6),
            timesteps=torch.zeros(1, 1, dtype=torch.long),
            attention_mask=torch.ones(1, 1),
        ).action_preds[0]
    np.testing.assert_allclose(policy.predict(seen)[0], expected, atol=1e-5)
    policy.save(tmp_path / "ours")
    again = DecisionTransformerPolicy.load(tmp_path / "ours")
    np.testing.assert_array_equal(again.predict(seen)[0], policy.predict(seen)[0])
    with pytest.raises(ConfigError, match="recorded returns are not known"):
        policy.with_target("q0.9")


def test_models_of_that_layout_come_from_the_hub(hub, tmp_path):
    tutorials_folder(tmp_path / "theirs")
    files = {file.name: file.read_bytes() for file in (tmp_path / "theirs").iterdir()}
    hub.repositories["edbeeching/dt"] = files
    hub.private["edbeeching/dt"] = False
    policy = load_decision_transformer(
        "hub:edbeeching/dt", STATES, ACTIONS, **STATISTICS, target=1.0
    )
    assert policy.predict(np.zeros((1, 3)))[0].shape == (1, 2)
    with pytest.raises(CheckpointError, match=r"policy\.json"):
        DecisionTransformerPolicy.load("hub:edbeeching/dt")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"mean": np.full(3, np.nan)}, SpaceError),
        ({"deviation": np.zeros(3)}, ConfigError),
        ({"target": "q0.5"}, ConfigError),
        ({"observation_space": spaces.Box(-1, 1, (4,))}, SpaceError),
        ({"action_space": spaces.Discrete(2)}, SpaceError),
    ],
)
def test_what_does_not_go_with_such_a_model_is_refused(tmp_path, wrong, error):
    tutorials_folder(tmp_path / "theirs")
    how = {"observation_space": STATES, "action_space": ACTIONS, "target": 1.0, **STATISTICS}
    with pytest.raises(error):
        load_decision_transformer(tmp_path / "theirs", **(how | wrong))


@pytest.mark.parametrize("size", [{"max_ep_len": 20_000_000}, {"n_layer": 200_000}])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_larger_models_than_their_parameters_are_not_built(tmp_path, size):
    path = tmp_path / "theirs"
    tutorials_folder(path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | size))
    with pytest.raises(CheckpointError, match="that were saved: they belong to different models"):
        load_decision_transformer(path, STATES, ACTIONS, **STATISTICS, target=1.0)


def test_parameters_that_unpack_to_far_more_are_not_read(tmp_path):
    path = tmp_path / "theirs"
    tutorials_folder(path, "bin")
    with ZipFile(path / "pytorch_model.bin", "a", ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/9", bytes(2**26))
    with pytest.raises(CheckpointError, match="bytes in memory of a file of"):
        load_decision_transformer(path, STATES, ACTIONS, **STATISTICS, target=1.0)


@pytest.mark.parametrize("damage", ["gelu", "nan", "cut", "missing", "other", "absent"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_models_of_that_layout_are_refused(tmp_path, damage):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "theirs"
    tutorials_folder(path, **({"activation_function": "gelu"} if damage == "gelu" else {}))
    weights = path / "model.safetensors"
    match damage:
        case "nan" | "missing":
            state = load_file(weights)
            name = "predict_action.0.bias"
            if damage == "nan":
                state[name][0] = np.nan
            else:
                del state[name]
            save_file(state, weights, metadata={"format": "pt"})
        case "cut":
            weights.write_bytes(weights.read_bytes()[:200])
        case "other":
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps(config | {"hidden_size": 8}))
        case "absent":
            (path / "config.json").unlink()
    with pytest.raises(CheckpointError):
        load_decision_transformer(path, STATES, ACTIONS, **STATISTICS, target=1.0)
