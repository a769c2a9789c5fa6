"""Pages of migration: every old name is there, and every name in its place exists."""

import ast
import contextlib
import inspect
import io
import re
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from preferl import registry
from preferl.cli.main import COMMANDS, main
from preferl.online.wrappers.feedback_config import FeedbackConfig
from preferl.online.wrappers.gymnasium_envs import GONE
from preferl.training.reward_presets import PRESETS

PAGES = Path(__file__).parents[2] / "docs/migrate"
NAMES = ("decision-transformer", "drlhp", "imitation", "preference-transformer")
PACKAGES = ["annotate", "data", "data.sources", "evaluation", "feedback", "functional", "models"]
PACKAGES += ["offline", "online", "runs", "store", "testing", "training", "reporting"]
PACKAGES += ["data.tasks", "training.reward_presets", "training.configs", "online.learner"]
PACKAGES += ["online.wrappers.query_worker", "models.base"]

VARIABLES = {
    "agent": "DecisionTransformer",
    "comparisons": "Comparisons",
    "feedback": "InstantFeedback",
    "learner": "SB3Learner",
    "policy": "DecisionTransformerPolicy",
    "report": "OnlineReport",
}
"""What variables of the pages are, whose attributes have to exist."""

ELSEWHERE = {
    "VecNormalize": "stable_baselines3.common.vec_env",
    "DecisionTransformerModel": "transformers",
    "Trainer": "transformers",
    "TrainingArguments": "transformers",
    "getLogger": "logging",
}
"""Names of other libraries, and where they are."""

WORDS = {"None", "a", "by", "info", "logging", "env", "reward", "float32", "from_pretrained"}
WORDS |= {"tanh", "num_train_epochs", "P", "E", "T", "L", "fn", "path", "k", "i", "o", "sqrt"}
WORDS |= {"alpha", "act", "obs", "clips", "done", "len", "learned_return", "venv", "__main__"}
"""Words in code that stand for something of the reader's, or of Python's."""

FILE = re.compile(r"[\w.*-]*\.(?:json|jsonl|html|db|gz|pkl|npz|npy|hdf5|zip|pt|py|safetensors)")

PT_FLAGS = """
    env model_type max_traj_length seed data_seed save_model batch_size early_stop min_delta
    patience reward_scale reward_bias clip_action reward_arch orthogonal_init activations
    activation_final training n_epochs eval_period data_dir num_query query_len skip_flag balance
    topk window use_human_label feedback_random feedback_uniform enable_bootstrap comment robosuite
    robosuite_dataset_type robosuite_dataset_path robosuite_max_episode_steps
    reward.rf_lr reward.optimizer_type
    transformer.trans_lr transformer.optimizer_type transformer.scheduler_type
    transformer.vocab_size transformer.n_layer transformer.embd_dim transformer.n_embd
    transformer.n_head transformer.n_positions transformer.resid_pdrop transformer.attn_pdrop
    transformer.pref_attn_embd_dim transformer.train_type transformer.use_weighted_sum
    lstm.lstm_lr lstm.optimizer_type lstm.scheduler_type lstm.vocab_size lstm.n_layer lstm.embd_dim
    lstm.n_embd lstm.n_head lstm.n_inner lstm.n_positions lstm.resid_pdrop lstm.attn_pdrop
    lstm.use_kld lstm.lambda_kld lstm.softmax_temperature lstm.train_type lstm.train_diff_bool
    lstm.explicit_sparse lstm.k
    logging.online logging.prefix logging.project logging.output_dir logging.random_delay
    logging.group logging.experiment_id logging.anonymous logging.notes
    env_name save_dir eval_episodes log_interval eval_interval max_steps tqdm use_reward_model
    ckpt_dir seq_len use_diff label_mode config pref_attn_type max_episode_steps
"""
"""Those of the Preference Transformer's scripts, `train_offline.py` among them."""

DRLHP_FLAGS = """
    test_mode debug render_episodes load_prefs_dir n_initial_prefs max_prefs log_dir run_name
    log_interval ent_coef n_envs seed lr_zero_million_timesteps lr load_policy_ckpt_dir
    policy_ckpt_interval million_timesteps reward_predictor_learning_rate n_initial_epochs dropout
    batchnorm load_reward_predictor_ckpt_dir reward_predictor_ckpt_interval synthetic_prefs max_segs
"""
"""Those of `run.py`."""

WRAPPER = """
    env reward_predictor_network train_reward collect_prefs segment_length mp_context prefs_dir
    log_dir max_prefs_in_db obs_transform_func n_initial_training_steps n_initial_prefs
    pretrained_reward_predictor_dir reward_predictor_ckpt_interval reward_predictor_refresh_interval
    validation_interval reward_database_refresh_interval synthetic_prefs max_pref_interface_segs
    zoom_ratio channels step reset save_prefs save_reward_predictor stop_segment_collection
    start_segment_collection switch_to_true_reward switch_to_predicted_reward close
    using_reward_from_predictor force_return_true_reward last_true_reward segments_collected
    pref_db_size reward_training_steps
"""
"""Arguments, methods and attributes of `HumanPreferencesEnvWrapper`."""


def page(name):
    return (PAGES / f"{name}.md").read_text("utf-8")


def rows(text):
    """`(heading, left cell, right cell)` of all tables with two columns."""
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("|") and len(cells) == 2 and set(cells[0]) != {"-"}:
            yield heading, *cells


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


@cache
def public():
    """Public things by their names."""
    found = {}
    for package in PACKAGES:
        module = import_module(f"preferl.{package}")
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        things = {name: getattr(module, name) for name in names}
        found |= {name: thing for name, thing in things.items() if not inspect.ismodule(thing)}
    return found


@cache
def members(name):
    """Attributes, fields and parameters of a public thing."""
    thing = public()[name]
    known = set(dir(thing)) if inspect.isclass(thing) else set()
    known |= {one.name for one in fields(thing)} if is_dataclass(thing) else set()
    for function in [thing, *(getattr(thing, one, None) for one in known if one[0] != "_")]:
        with contextlib.suppress(TypeError, ValueError):
            parameters = inspect.signature(function).parameters.values()
            known |= {one.name for one in parameters}
            if function is thing and any(one.kind is one.VAR_KEYWORD for one in parameters):
                known |= {one.name for one in fields(FeedbackConfig)}
    known |= set(re.findall(r"^ +(\w+): ", inspect.getdoc(thing) or "", re.M))  # documented ones
    return known


@cache
def vocabulary():
    """All words that mean something somewhere in the library."""
    registries = [one for one in vars(registry).values() if isinstance(one, registry.Registry)]
    named = {name for one in registries for name in one.names()} | set(PRESETS)
    return named.union(public(), *map(members, public()), WORDS, ELSEWHERE, VARIABLES)


@cache
def options(command):
    """Those that `--help` lists, with any reward model."""
    models = [("--model", name) for name in PRESETS] if command == "reward fit" else [()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for more in models:
            with pytest.raises(SystemExit):
                main([*command.split(), *more, "--help"])
    return set(re.findall(r"--[\w.-]+", out.getvalue()))


def wrong_in_python(text):
    """Names in an expression, or in keywords of a call, that do not exist."""
    try:
        tree = ast.parse(f"_({re.sub(r'=(?=[,)])', '=None', text)})", mode="eval").body
    except SyntaxError:
        return [f"unread: {text}"]
    wrong = []
    for node in (node for part in [*tree.args, *tree.keywords] for node in ast.walk(part)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = VARIABLES.get(node.value.id, node.value.id)
            if owner in public():
                wrong += [] if node.attr in members(owner) else [f"{owner}.{node.attr}"]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            owner = node.func.id
            if owner in public():
                given = [one.arg for one in node.keywords if one.arg]
                wrong += [f"{owner}({n}=)" for n in given if n not in members(owner)]
        if isinstance(node, ast.Name | ast.keyword | ast.Attribute):
            name = getattr(node, "id", getattr(node, "arg", None)) or getattr(node, "attr", None)
            dotted = isinstance(node, ast.Attribute) and ast.unparse(node).startswith("preferl.")
            known = name in vocabulary() or name == "preferl" or dotted
            wrong += [] if known else [name]
    return wrong


def wrong_names(heading, cell):
    """Options and names of a cell that do not exist; others test dotted names of preferl."""
    spans = code(cell)
    commands = [name for name in COMMANDS if f"`preferl {name}" in f"{heading} {cell}"]
    known = set().union(*map(options, commands))
    wrong = []
    for span in spans:
        if span.startswith(("preferl ", "python ")) or "/" in span or FILE.fullmatch(span):
            continue
        if span.startswith("--"):
            wrong += [one for one in re.findall(r"--[\w.-]+", span) if one not in known]
            continue
        wrong += [] if span in vocabulary() else wrong_in_python(span)
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_what_takes_the_place_of_old_names_exists(name):
    found = {right: wrong_names(heading, right) for heading, _, right in rows(page(name))}
    assert len(found) > 15
    assert {right: wrong for right, wrong in found.items() if wrong} == {}


def old_names(name):
    """Names and options on the left."""
    spans = [span for _, left, _ in rows(page(name)) for span in code(left)]
    return {word for span in spans for word in re.findall(r"[\w.]+", span)}


@pytest.mark.parametrize(
    ("name", "old"),
    [("preference-transformer", PT_FLAGS), ("drlhp", DRLHP_FLAGS), ("drlhp", WRAPPER)],
)
def test_every_old_name_is_there(name, old):
    assert set(old.split()) - old_names(name) == set()


def test_the_wrapper_names_what_takes_the_place_of_everything_that_it_lacks():
    levels = {name for name in GONE if name.endswith("_log_level")}
    assert GONE.keys() - levels <= old_names("drlhp")
    from preferl.online import HumanPreferencesEnvWrapper

    has = {*dir(HumanPreferencesEnvWrapper), *members("HumanPreferencesEnvWrapper")}
    assert set(WRAPPER.split()) - has <= GONE.keys()


def test_wrong_names_are_noticed():
    for cell in ("`DTConfig.wide`", "`DTConfig(wide=1)`", "`no_such_name`", "`agent.fitt`"):
        assert wrong_names("", cell), cell
    assert wrong_names("## `preferl reward fit`", "`--lables`") == ["--lables"]
    assert wrong_names("", "`--labels`") == ["--labels"]  # of no command
    assert wrong_names("## `preferl reward fit`", "`--labels` and `DTConfig.width`") == []
