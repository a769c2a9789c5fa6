"""A whole run in a folder: everything that came of it is there and can be used again."""

import io
import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from helpers.answered_store import Answering
from helpers.folder_contents import contents
from helpers.gardens import Lawn
from helpers.tiny_runs import KilledError, tiny
from preferl.errors import ConfigError, ResumeError
from preferl.feedback import PromptTeacher
from preferl.online import run as online_run, run_online, train_on_true_reward
from preferl.online.configs import EvaluationConfig
from preferl.reporting import read_jsonl
from preferl.runs import RunFolder, read_run
from preferl.store import Store, StoredFeedback, feedback as stored
from preferl.training import RewardTrainerConfig

TINY = tiny(eval_every=None, trainer=RewardTrainerConfig(epochs=1))
PERSON = "preferl.feedback.prompt:PromptTeacher"
EVALUATION = EvaluationConfig(episodes=2, queries=20, clip_steps=4)
QUICK = replace(EVALUATION, oracle=False, clip_steps=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    stages = []
    result = run_online(TINY, folder, evaluation=EVALUATION, on_stage=stages.append)
    return folder, result, stages


def test_result_holds_what_was_measured(run):
    folder, result, _ = run
    assert json.loads((folder / "result.json").read_text()) == result
    assert {"random", "taught", "oracle", "comparisons", "env_steps", "seconds"} <= set(result)
    assert result["comparisons"] == 12
    assert result["taught"] == pytest.approx(
        np.mean(result["policies"]["taught"]["returns"]), abs=1e-3
    )
    assert set(result["controls"]) == {"random", "negated", "zero"}
    accuracies = result["reward"]["accuracy"], result["controls"]["negated"]["accuracy"]
    assert sum(accuracies) == pytest.approx(1)
    metrics = read_jsonl(folder / "metrics.jsonl")
    assert metrics["step"].max() == 1_000
    for name in ("reward/train_loss", "reward/out_of_bag_answers", "train/approx_kl"):
        assert np.isfinite(metrics[name]).any(), name
    shown = np.isfinite(metrics["eval/mean_reward_low"])
    assert shown.sum() == len(result["evaluations"]["taught"]) > 2
    assert list((folder / "tensorboard").glob("events*"))
    endings = {file.suffix for file in folder.rglob("*") if file.is_file()}
    allowed = {".json", ".jsonl", ".npy", ".safetensors", ".html"}
    assert {e for e in endings if not e[1:].isdigit()} <= allowed, "nothing is pickled"


def test_the_settings_that_a_run_chose_itself_are_written(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    drawn = []

    def draw(segments, count, rng):
        drawn.append(count)
        return rng.permutation(len(segments))[: 2 * count].reshape(-1, 2)

    config = replace(TINY, algorithm=None)
    run_online(config, tmp_path / "run", evaluation=QUICK, sampler=draw, on_iteration=stop)
    assert drawn, "a sampler of one's own chooses the queries"
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["config"]["algorithm"] is None
    resolved = written["resolved"]
    assert resolved["algorithm"]["kind"] == "SACConfig"
    assert resolved["algorithm"]["buffer_size"] == config.steps
    assert resolved["model"]["hidden"] == [8]
    assert "draw" in resolved["sampler"]
    assert resolved["trainer"]["epochs"] == resolved["initial_epochs"] == 1
    assert resolved["eval_every"] == 100


def seldom_decides(shown, rng):
    return np.where(np.arange(len(shown)) % 3, 0.5, 1.0)


def test_result_and_report_tell_what_is_wrong(tmp_path):
    config = replace(TINY, comparisons=30)
    result = run_online(config, tmp_path / "run", evaluation=QUICK, teacher=seldom_decides)
    summary = read_run(tmp_path / "run").summary
    assert [finding.name for finding in summary.findings] == ["too_alike"]
    assert summary.score.mean == result["policies"]["taught"]["mean"]
    page = (tmp_path / "run/report.html").read_text()
    assert "What to look at" in page
    assert "of the answers are ties" in page


def answered_in_turns(people, *persons):
    """Have each of these persons answer one query, if there is one, always with the left clip."""
    people.show()
    for person in persons:
        for question in people.store.queue.claim(people.project.id, person, 1).queries:
            people.store.queue.answer(person, question.token, f"key-{question.token}", "left")


def test_a_run_tells_what_people_were_asked_and_how_far_they_are_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "POLL_SECONDS", 0.0)
    config = replace(TINY, trainer=RewardTrainerConfig(epochs=1, trust=True))
    with Store.open(tmp_path / "store") as store:
        people = Answering(store)
        both = people.person, store.people.invite(people.project.id, "Bo").annotator.id
        answer = partial(answered_in_turns, people)
        each = {"combine": "each", "patience": 60.0, "on_wait": lambda _: answer(*both)}
        feedback = StoredFeedback(store, **each)
        result = run_online(config, tmp_path / "run", evaluation=QUICK, feedback=feedback)
        assert set(result["trust"]) == set(feedback.answers().names)
    resolved = json.loads((tmp_path / "run/config.json").read_text())["resolved"]
    assert resolved["answered_by"] == "people"
    assert resolved["question"] == people.project.question
    one = result["trust"]["Bo"]
    assert one["low"] < one["value"] < one["high"]
    page = (tmp_path / "run/report.html").read_text()
    assert "answers of people to the question" in page
    assert people.project.question in page
    assert "Trust in annotators" in page
    half = one["high"] - one["value"]
    assert f"<td>{one['value']:.2f} ± {half:.2f}</td>".replace("-", "−") in page


def test_report_is_one_page_without_requests(run):
    folder, _, stages = run
    page = (folder / "report.html").read_text()
    assert page.count("data:video/mp4;base64,") == 2
    assert page.count("#t=") == 2, "both begin where they differ at first sight"
    assert ">true reward<" in page
    assert ">oracle<" not in page
    assert "<svg" in page
    assert "Evaluations of taught while learning, without exploring" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "writing the report" in stages


def more_to_the_right(shown, rng):
    right = shown.observations["place"][..., 0].sum(-1)  # [P, 2]
    return (right[:, 0] > right[:, 1]).astype(float)


def test_without_a_reward_of_the_environment_the_report_is_about_the_answers(tmp_path):
    config = replace(TINY, env=Lawn, comparisons=20)
    result = run_online(config, tmp_path / "run", evaluation=QUICK, teacher=more_to_the_right)
    assert not result["has_true_reward"]
    assert " out-of-bag answers (95 % interval " in result["accuracy_in_words"]
    summary = read_run(tmp_path / "run").summary
    assert summary.findings == ()
    assert summary.score is None, "returns of an environment without a reward say nothing"
    page = (tmp_path / "run/report.html").read_text()
    assert result["accuracy_in_words"] in page
    assert page.index(">Accuracy<") < page.index(">Comparisons<")
    assert "One whole episode of the taught agent, 20 steps" in page
    before_settings = page[: page.index("Settings")]
    for words in (">Return<", "Returns of", "true re", "true one", " ties", "epic", "<td>–"):
        assert words not in before_settings, words


def test_the_settings_name_who_answered(tmp_path):
    teacher = PromptTeacher(ask=lambda _: "e", output=io.StringIO())

    def stop(turn):
        raise KeyboardInterrupt

    few = replace(TINY, comparisons=4, steps=600, iterations=1)
    out = tmp_path / "run"
    run_online(few, out, evaluation=QUICK, on_iteration=stop, teacher=teacher)
    saved = json.loads((out / "config.json").read_text())["config"]["teacher"]
    assert saved == PERSON
    with pytest.raises(ConfigError, match=r"to resume the run in .* with: expected teacher"):
        run_online(few, out, evaluation=QUICK, resume=True)
    assert run_online(few, out, evaluation=QUICK, teacher=teacher, resume=True)["comparisons"] == 4


def test_a_run_that_was_interrupted_twice_is_resumed(tmp_path, run):
    def in_an_iteration(turn):
        if turn.iteration == 1:
            raise KeyboardInterrupt

    def in_the_evaluation(_):
        raise KeyboardInterrupt

    _, whole, _ = run
    out = tmp_path / "run"
    run_online(TINY, out, evaluation=EVALUATION, on_iteration=in_an_iteration)
    assert (out / "checkpoints").is_dir()
    with pytest.raises(ConfigError, match=r"expected iterations=2, got iterations=3"):
        run_online(replace(TINY, iterations=3), out, evaluation=EVALUATION, resume=True)
    result = run_online(TINY, out, evaluation=EVALUATION, resume=True, on_stage=in_the_evaluation)
    assert result["interrupted"]
    assert json.loads((out / "result.json").read_text())["env_steps"] == 1_000
    result = run_online(TINY, out, evaluation=EVALUATION, resume=True)
    assert not result["interrupted"]
    for name in ("taught", "reward", "evaluations"):
        assert result[name] == whole[name]
    assert json.loads((out / "result.json").read_text()) == result
    assert not (out / "checkpoints").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_places_are_chosen_and_others_are_refused_before_anything_moves(tmp_path, run):
    result = run_online(
        replace(TINY, eval_every=0), tmp_path / "run", evaluation=QUICK, report_to=()
    )
    assert result["evaluations"] == {"taught": []}
    assert not (tmp_path / "run/metrics.jsonl").exists()
    assert not (tmp_path / "run/tensorboard").exists()
    assert "Evaluations while learning" not in (tmp_path / "run/report.html").read_text()
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="jsonl, tensorboard, wandb"):
        run_online(TINY, tmp_path / "run", evaluation=QUICK, report_to=("jsonl", "pigeon"))
    assert contents(tmp_path) == before


def test_the_comparison_on_the_true_reward_takes_no_more_steps_either():
    assert train_on_true_reward(replace(TINY, steps=777)).num_timesteps == 776


def test_a_run_that_is_killed_after_its_result_is_finished(tmp_path, monkeypatch):
    def killed(*_, **__):
        raise KilledError

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "result", killed)
        with pytest.raises(KilledError):
            run_online(TINY, out, evaluation=QUICK)
    assert (out / "checkpoints").is_dir(), "nothing is removed before the result is there"
    with monkeypatch.context() as patch:
        remove = shutil.rmtree
        patch.setattr(
            *(online_run.shutil, "rmtree"),
            lambda path, **kw: (killed if path.name == "checkpoints" else remove)(path, **kw),
        )
        with pytest.raises(KilledError):
            run_online(TINY, out, evaluation=QUICK, resume=True)
    with pytest.raises(ResumeError, match="finished"):
        run_online(TINY, out, evaluation=QUICK, resume=True)
    result = json.loads((out / "result.json").read_text())
    assert not result["interrupted"]
    assert "oracle" not in result
    assert "video/mp4" not in (out / "report.html").read_text()
