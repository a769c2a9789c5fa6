# %% [markdown]
# # A pendulum from 200 comparisons, step by step
#
# This is the tutorial of the library imitation, in preferl. A scripted teacher compares clips of a
# pendulum. preferl fits a reward to the answers while an agent learns. Then a new agent learns from
# the finished reward. At the end, the environment's own reward evaluates the new agent.

# %%
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from preferl import (
    FeedbackVecEnv,
    InstantFeedback,
    MLPReward,
    MLPRewardConfig,
    OnlineConfig,
    PPOConfig,
    RewardTrainer,
    RewardTrainerConfig,
    SB3Learner,
    ScriptedTeacher,
    UniformPairs,
    learn_from_preferences,
)
from preferl.online import make_environments
from preferl.online.algorithms import build_algorithm

# %% [markdown]
# ## The agent
#
# The agent is PPO of stable-baselines3, with the settings of the tutorial. It sees normalised
# observations. `norm_reward=False` leaves the rewards alone, because preferl scales them.

# %%
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


# %% [markdown]
# ## The run
#
# The untrained agent acts for 4,000 steps, about which the teacher answers the first queries. Then
# the agent learns for 5,000 steps. Five iterations take seconds. Set 60 for an agent that swings up
# well.

# %%
run = OnlineConfig(
    steps=9_000,  # 4,000 to ask the first queries about, 5,000 to learn in
    initial_steps=4_000,
    iterations=5,  # 60 for an agent that swings up well
    comparisons=200,
    initial_fraction=0.1,
    initial_epochs=12,
    segment_length=100,
    variable_length="refuse",
)

# %% [markdown]
# Each part of the run can be replaced. Here, all parts are given: the agent, the sampler that
# chooses pairs of clips, the teacher that answers, and the reward model with its trainer.

# %%
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
fit = report.iterations[-2].fit  # the last iteration asks nothing, so it fits nothing
print(f"reward: loss {fit.train_loss[-1]:.3f}, accuracy {fit.train_accuracy[-1]:.1%}")

# %% [markdown]
# ## The learned reward
#
# The teacher answers by the environment's own reward, so the learned reward can be compared with
# it, step by step. The reward model has seen the answers only. The scale of a learned reward has no
# meaning: what counts is whether higher learned rewards go with higher true ones.

# %%
steps = report.comparisons.segments  # the steps of all clips that were compared
learned = report.reward(
    steps.observations[:, None], steps.actions[:, None], np.ones((len(steps.rewards), 1), bool)
)
correlation = np.corrcoef(learned, steps.rewards)[0, 1]
figure, axes = plt.subplots(figsize=(5, 4))
axes.scatter(steps.rewards, learned, s=2, alpha=0.3)
axes.set(xlabel="true reward of a step", ylabel="learned reward", title=f"r = {correlation:.2f}")
figure.savefig("pendulum_reward.png", dpi=100, bbox_inches="tight")
print(f"correlation of learned and true rewards: {correlation:.2f}")

# %% [markdown]
# ## A new agent on the finished reward
#
# `FeedbackVecEnv` gives each step its learned reward. A thousand steps show that all parts fit
# together. A proficient agent needs 100,000. On harder tasks, let the new agent ask as well: the
# answers were about what another agent did.

# %%
rewarded = FeedbackVecEnv(make_environments("Pendulum-v1", 8, seed=0))
rewarded.set_reward(report.reward)
learner = agent(rewarded).learn(1_000)  # 100_000 for a proficient agent

# %% [markdown]
# ## Evaluation by the true reward
#
# stable-baselines3 adds up what its `Monitor` sees. The monitor is next to the environment, so the
# sums are returns by the environment's own reward. A random policy returns about −1,200.
#
# The agent has to act in its own environment, which normalises what it sees. In another one,
# `agent.policy` or the agent would act on observations that it does not know.
# `preferl.evaluate_policy(learner, "Pendulum-v1", seed=1)` makes environments of its own and
# normalises by itself. It refuses `learner.policy`, which does not have the statistics.

# %%
evaluation = learner.get_env()
evaluation.training = False  # keeps the statistics of observations as they are
returns, _ = evaluate_policy(learner, evaluation, 10, return_episode_rewards=True)
print(f"true return: {np.mean(returns):.0f} +/- {np.std(returns) / np.sqrt(10):.0f}")
