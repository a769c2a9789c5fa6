"""Decision Transformers of 25 demonstrations of opening a door and 1,600 answers of real people.

Rewards are ensembles fitted to crowd labels (Uni-RLHF, Yuan et al. 2024) of demonstrations
(Rajeswaran et al. 2018), each member normalised over the data before they are averaged. A Decision
Transformer (Chen et al. 2021) is asked for the 95 % quantile of the returns that such a reward
gives the demonstrations, and pays itself by it as it goes; one with critics (DTR, Tu et al. 2025)
is also drawn to actions of higher value. Beside them learn the same agents with no reward, a random
one and the opposite of what people preferred, one with the true reward, and clones.

The rule for the number of updates was fixed before the first whole run: 500 of each agent, some
90 times all steps, judged once, after the last. `AdroitHandDoor-v1` is judged with the sign of its
reach term corrected (`pip install 'preferl[hub,robotics]'`). The paper reports 14.2 ± 1.4 for a
Decision Transformer and 33.3 ± 8.6 for DTR, of ten episodes for each of five seeds.

    PREFERL_SHARED=../shared python recipes/dt_door_human.py [--smoke] [--seeds 0 1 2]
"""

import argparse
import csv
import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from preferl.data import Episodes, find_task
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import evaluate_policies, task_env
from preferl.models import infer_spaces
from preferl.offline import (
    BehaviourCloning,
    CloningConfig,
    DecisionTransformer,
    DecisionTransformerPolicy,
    DTConfig,
    DTRConfig,
    Transitions,
)
from preferl.offline.arms import Arms, agent_name, build_arms
from preferl.offline.scores import ArmScore, score_arms
from preferl.offline.sequence_agents import payer
from preferl.offline.verdict import compare
from preferl.runs import versions
from preferl.training import RewardFunction, RewardSettings, relabel
from preferl.training.precision import fast_precision

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
DOOR = SHARED / "data" / "adroit-door-human"
RESULTS = Path(__file__).parent / "results" / "dt_door_human.csv"
TASK, ENV, STEPS, EPISODES = find_task("door-human-v1"), "AdroitHandDoor-v1", 500, 100
CLONE_STEPS = 20_000  # as in pt_door_human.py
ON = ("gymnasium", "gymnasium-robotics", "mujoco", "torch", "transformers")
REWARD = RewardSettings("mr", members=3, budget=300, batch_size=64, noise=0.1, normalise=True)
CONFIG = DTConfig(
    learning_rate=3e-4, horizon=TASK.max_episode_steps, precision=fast_precision(), target="q0.95"
)
# People's actions hardly vary, so that cloning them costs 0.014 per number; critics that weigh 1
# made that 0.2. They weigh as much as cloning costs, which was chosen before anything was judged.
KINDS = {"dt": CONFIG, "dtr": replace(CONFIG, regulariser=DTRConfig(weight=0.01))}


def fit_reward(episodes: Episodes, smoke: bool, seed: int) -> RewardFunction:
    """An ensemble that is fitted once per seed."""
    labels = load_labels(DOOR / "door-human-v1_human_labels", episodes, crossing="keep")
    pairs = labels.comparisons[: 64 if smoke else None]
    settings = replace(REWARD, budget=1 if smoke else REWARD.budget)
    preset = settings.preset(length=pairs.segments.length, answers=len(pairs))
    spaces = infer_spaces(episodes.observations, episodes.actions)
    model, report = preset.fit(pairs, *spaces, seed=seed)
    held = report.validation_accuracy[report.best_epoch - 1]
    print(f"reward, seed {seed}: {held:.3f} held out, {report.seconds:.0f} s", flush=True)
    return RewardFunction(model).scaled(episodes)


def train(
    kind: str, episodes: Episodes, arms: Arms, reward: RewardFunction, seed: int, steps: int
) -> dict[str, DecisionTransformerPolicy]:
    """Names to policies of one seed, each paid by what it learned from."""
    env = task_env(ENV)()
    policies = {}
    for arm, rewards in zip(arms.names, arms.rewards[:, 0], strict=True):
        if (kind, arm) == ("dtr", "true"):
            continue
        began = time.perf_counter()
        agent = DecisionTransformer(
            env.observation_space, env.action_space, KINDS[kind], seed=seed, steps=steps
        )
        told = agent.fit(agent.sequences(episodes, rewards=rewards), every=max(1, steps // 10))
        name = agent_name(f"{kind} {arm}", seed)
        policies[name] = agent.policy().paid_by(payer(arm, seed, reward))
        print(f"{name}: {told}, {time.perf_counter() - began:.0f} s", flush=True)
    return policies


def clone(episodes: Episodes, seeds: list[int], steps: int) -> dict:
    env = task_env(ENV)()
    spaces = env.observation_space, env.action_space
    clones = BehaviourCloning(*spaces, CloningConfig(dropout=0.1), seeds=seeds, steps=steps)
    clones.fit(Transitions.of(episodes), steps)
    names = [agent_name("cloning", seed) for seed in seeds]
    return dict(zip(names, clones.policies(), strict=True))


def groups_of(names: list[str]) -> dict[str, list[str]]:
    """Arms to the names of their agents, by seed."""
    arms: dict[str, list[str]] = {}
    for name in names:
        arms.setdefault(name.rsplit("-", 1)[0], []).append(name)
    return arms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few updates and episodes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    seeds = options.seeds[:1] if options.smoke else options.seeds
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    episodes = load_demonstrations(DOOR / "door-v0_demos.pickle")
    policies = clone(episodes, seeds, 5 if options.smoke else CLONE_STEPS)
    for seed in seeds:
        reward = fit_reward(episodes, options.smoke, seed)
        paid = relabel(episodes, reward).rewards
        arms = build_arms(episodes, paid, seeds=[seed], task=TASK, scaled=False)
        for kind in options.kinds:
            steps = 2 if options.smoke else STEPS
            policies |= train(kind, episodes, arms, reward, seed, steps)
    reports = evaluate_policies(
        policies,
        task_env(ENV),
        episodes=2 if options.smoke else EPISODES,
        seed=10_000,
        max_steps=5 if options.smoke else TASK.max_episode_steps,
        processes=1 if options.smoke else 2,
    )
    scores = score_arms(reports, groups_of(list(policies)), TASK)
    for arm, score in scores.items():
        print(arm, score.to_json(), flush=True)
    for kind in options.kinds:
        own = {arm.split()[-1]: s.returns for arm, s in scores.items() if arm.split()[0] == kind}
        if len(seeds) > 1:
            print(f"{kind}: {compare(own | {'cloning': scores['cloning'].returns}).text}")
    if not options.smoke:
        write(scores, seeds)


def write(scores: dict[str, ArmScore], seeds: list[int]) -> None:
    """One row per arm and seed, with the packages that decide the scores."""
    installed = versions()["packages"]
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "seed", "score", "return", "success", "updates", "episodes", "on"])
        on = " ".join(f"{name} {installed.get(name)}" for name in ON)
        for arm, score in scores.items():
            for k, seed in enumerate(seeds):
                numbers = score.scores[k], score.returns[k], score.success[k]
                made = CLONE_STEPS if arm == "cloning" else STEPS
                writer.writerow(
                    [arm, seed, *(round(float(n), 3) for n in numbers), made, EPISODES, on]
                )


if __name__ == "__main__":
    main()
