"""Pages of migration: every old name is there, and every word in its place is the code's."""

import re
from dataclasses import fields
from functools import cache
from inspect import signature
from pathlib import Path

import pytest

import preferl
from preferl.online.wrappers.feedback_config import FeedbackConfig
from preferl.online.wrappers.gymnasium_envs import GONE

PAGES = Path(__file__).parents[2] / "docs/migrate"
NAMES = ("decision-transformer", "drlhp", "imitation", "preference-transformer")
OTHERS = {
    "ENV",
    "human_label",
    "drlhp_collect",
    "drlhp_pretrained",
    "drlhp_together",
    "drlhp_train",
}
"""Words in code that are the reader's, of labels, or names of examples."""


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


@cache
def words_of_the_code():
    """All words of the package: names, options, and what their documentation says."""
    texts = [file.read_text("utf-8") for file in Path(preferl.__file__).parent.rglob("*.py")]
    return {word for text in texts for word in re.findall(r"[A-Za-z]\w+", text)}


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


def old_names(name):
    """Names and options on the left."""
    spans = [span for _, left, _ in rows(page(name)) for span in code(left)]
    return {word for span in spans for word in re.findall(r"[\w.]+", span)}


@pytest.mark.parametrize("name", NAMES)
def test_what_takes_the_place_of_old_names_exists(name):
    spans = [span for _, _, right in rows(page(name)) for span in code(right)]
    assert len(spans) > 15
    words = {word for span in spans for word in re.findall(r"[A-Za-z]\w+", span)}
    assert words - words_of_the_code() - OTHERS == set()


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

    has = {*dir(HumanPreferencesEnvWrapper), *signature(HumanPreferencesEnvWrapper).parameters}
    has |= {field.name for field in fields(FeedbackConfig)}
    assert set(WRAPPER.split()) - has <= GONE.keys()
