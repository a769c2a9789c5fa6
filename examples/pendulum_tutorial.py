"""A reward for Pendulum from 200 comparisons, a new agent on it, evaluated on the true one.

python examples/pendulum_tutorial.py
"""

import argparse

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from preferl.feedback import InstantFeedback, ScriptedTeacher, UniformPairs
from preferl.models import MLPReward, MLPRewardConfig
from preferl.online import (
    FeedbackVecEnv,
    OnlineConfig,
    PPOConfig,
    SB3Learner,
    learn_from_preferences,
    make_environments,
)
from preferl.online.algorithms import build_algorithm
from preferl.training import RewardTrainer, RewardTrainerConfig

PPO = PPOConfig(
    n_steps=256,
    learning_rate=2e-3,
    clip_range=0.1,
    ent_coef=0.01,
    gamma=0.97,
    hidden=(32, 32),
)


def agent(env: VecEnv) -> BaseAlgorithm:
    """An agent that sees normalised observations."""
    return build_algorithm(PPO, VecNormalize(env, norm_reward=False), seed=0)


def main(*, smoke: bool) -> None:
    run = OnlineConfig(
        steps=9_000,  # 4,000 to ask the first questions about, 5,000 to learn in
        initial_steps=4_000,
        iterations=2 if smoke else 5,  # 60 for an agent that swings up well
        comparisons=200,
        initial_fraction=0.1,
        initial_epochs=12,
        segment_length=100,
        variable_length="refuse",
    )
    rng = np.random.default_rng(0)
    env = make_environments("Pendulum-v1", 8, seed=0)
    shape = MLPRewardConfig(hidden=(32, 32), activation="relu")  # its inputs are normalised
    model = MLPReward(env.observation_space, env.action_space, shape, seed=0)
    report = learn_from_preferences(
        run,
        learner=SB3Learner(agent(env), total_steps=run.steps, exploration_fraction=0.05, rng=rng),
        sampler=UniformPairs(),
        feedback=InstantFeedback(ScriptedTeacher(scale=None), rng),
        trainer=RewardTrainer(model, RewardTrainerConfig(epochs=3), seed=0),
        on_iteration=lambda one: print(f"iteration {one.iteration}: {one.comparisons} comparisons"),
    )
    fit = report.iterations[-2].fit  # the last one only learns
    print(f"reward: loss {fit.train_loss[-1]:.3f}, accuracy {fit.train_accuracy[-1]:.1%}")

    rewarded = FeedbackVecEnv(make_environments("Pendulum-v1", 8, seed=0))
    rewarded.set_reward(report.reward)
    learner = agent(rewarded).learn(1_000)  # 100_000 for a proficient agent

    evaluation = learner.get_env()
    evaluation.training = False  # keeps the statistics of observations as they are
    # What is added up is what Monitor sees, which sits next to the environment: its own reward.
    returns, _ = evaluate_policy(learner, evaluation, 10, return_episode_rewards=True)
    print(f"true return: {np.mean(returns):.0f} +/- {np.std(returns) / np.sqrt(10):.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="two iterations instead of five")
    main(smoke=parser.parse_args().smoke)
