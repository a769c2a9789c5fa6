"""An agent of RLlib with several EnvRunners learns CartPole from comparisons.

`RLlibLearner` is a `PolicyLearner`: each EnvRunner computes the learned reward of its own steps,
from versions in a folder, and `learn_from_preferences` asks, fits and publishes. A script answers.

    python examples/rllib/cartpole.py [--runners N] [--seed N] [--smoke]

RLlib wants a gymnasium of its own: `make VENV=.venv-rllib .venv-rllib/.rllib` installs both.
"""

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, final

import gymnasium
import ray
import torch
from gymnasium.vector import SyncVectorEnv
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.spaces.space_utils import unsquash_action
from ray.tune.registry import register_env

from preferl import (
    Episodes,
    FeedbackVectorEnv,
    OnlineConfig,
    RewardFunction,
    RewardTrainer,
    build_reward_model,
    evaluate_policy,
    learn_from_preferences,
)
from preferl.data import join
from preferl.envs.config import EnvSource
from preferl.envs.factory import make_env
from preferl.errors import ConfigError
from preferl.evaluation import RandomPolicy
from preferl.evaluation.policies import Policy
from preferl.online.reports import IterationReport
from preferl.runs.versioned import versions
from preferl.training.publish import publish

ENV = "CartPole-v1"
RUN = Path("runs/rllib")


def rewarded_envs(context: dict[str, Any]) -> FeedbackVectorEnv:
    """The environments of one EnvRunner: they take the newest published reward, and record."""
    envs = SyncVectorEnv([partial(make_env, context["env"])] * context["num_envs"])
    rewards = context["rewards"]
    before = context["before"]
    return FeedbackVectorEnv(envs, rewards=rewards, before=before, record=True)


def envs_of(runner: SingleAgentEnvRunner) -> FeedbackVectorEnv:
    """Inside of the wrapper that RLlib puts around them."""
    return runner.env.env


def sample(runner: SingleAgentEnvRunner, steps: int) -> int:
    """Act for at least so many steps, from which nothing learns; how many they were."""
    return sum(len(episode) for episode in runner.sample(num_timesteps=steps))


def take(runner: SingleAgentEnvRunner) -> Episodes | None:
    """The episodes that ended since the last call, each whole and with its true rewards."""
    return envs_of(runner).take()


def refresh(runner: SingleAgentEnvRunner) -> None:
    """Switch to the newest published reward."""
    envs_of(runner).refresh(wait=True)


@final
class RLlibLearner:
    """An on-policy algorithm of RLlib that improves on a learned reward.

    An EnvRunner that RLlib starts again has the newest reward from its first step on.

    Args:
        config: all of the algorithm but its environment, with RLlib's own connectors.
        env: the id of an environment, or a function without arguments that makes one.
        rewards: new folder for versions of the reward, on a disk that all machines share.
        before: the reward until the first version: "zero", or "environment" for the true one.
    """

    def __init__(
        self, config: AlgorithmConfig, env: EnvSource, rewards: Path, *, before: str = "zero"
    ) -> None:
        self.rewards = rewards.resolve()
        self.steps = 0
        self._asked = 0
        self._ended: list[Episodes] = []  # in the last call, by EnvRunner
        earlier = versions(self.rewards)
        if earlier:
            raise ConfigError(
                f"rewards {self.rewards}: expected a new folder, got {earlier}. Remove it, or "
                "name another one."
            )
        self.rewards.mkdir(parents=True, exist_ok=True)
        register_env("rewarded", rewarded_envs)
        context = {"env": env, "rewards": str(self.rewards), "before": before}
        config = config.environment("rewarded", env_config=context)
        self.algorithm = config.env_runners(
            gym_env_vectorize_mode="vector_entry_point"
        ).build_algo()

    def explore(self, steps: int) -> Episodes:
        """Act as the untrained policy does."""
        self._asked += steps
        runners = self.algorithm.env_runner_group.num_remote_workers() or 1
        self.steps += sum(self.everywhere(partial(sample, steps=-(-steps // runners))))
        return self._taken()

    def learn(self, steps: int) -> Episodes:
        """Train on whole batches; steps that make no batch are left to the next call."""
        self._asked += steps
        batch = self.algorithm.config.total_train_batch_size
        while self.steps + batch <= self._asked:
            self.everywhere(refresh)
            result = self.algorithm.train()[ENV_RUNNER_RESULTS]
            self.steps = int(result[NUM_ENV_STEPS_SAMPLED_LIFETIME])
        return self._taken()

    def set_reward(self, reward: RewardFunction) -> None:
        """Publish a version, to which all EnvRunners switch before they act for the next batch."""
        publish(self.rewards, reward)

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Observations `[V, *obs]` to the likeliest actions `[V, *act]`, as EnvRunners act."""
        module = self.algorithm.get_module()
        with torch.no_grad():
            found = module.forward_inference({"obs": torch.as_tensor(observation)})
        actions = module.get_inference_action_dist_cls().from_logits(found["action_dist_inputs"])
        likeliest = actions.to_deterministic().sample().numpy()
        return unsquash_action(likeliest, module.action_space), state

    def everywhere(self, work: Callable[[SingleAgentEnvRunner], Any]) -> list[Any]:
        """What a function returns for each EnvRunner that acts."""
        group = self.algorithm.env_runner_group
        return group.foreach_env_runner(work, local_env_runner=not group.num_remote_workers())

    def _taken(self) -> Episodes:
        """The episodes that ended in a call; none where a later call was too short for that."""
        ended = [part for part in self.everywhere(take) if part is not None]
        self._ended = ended or [part[:0] for part in self._ended[:1]]
        return join(self._ended)


def ppo(runners: int, seed: int) -> PPOConfig:
    network = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    return (
        PPOConfig()
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=8)
        .training(lr=1e-3, lambda_=0.95, train_batch_size_per_learner=2048, minibatch_size=256)
        .training(num_epochs=10, vf_clip_param=float("inf"))
        .rl_module(model_config=network)
        .debugging(seed=seed)
    )


def on_answers(learner: RLlibLearner, config: OnlineConfig) -> None:
    """Learn from the answers that the config asks for."""
    env = gymnasium.make(ENV)
    seed = config.seed
    model = build_reward_model(config.model, env.observation_space, env.action_space, seed=seed)
    trainer = RewardTrainer(model, config.trainer, seed=seed)

    def show(one: IterationReport) -> None:
        print(f"{one.env_steps:,} steps, {one.comparisons} answers, return {one.mean_return:.0f}")

    learn_from_preferences(config, learner=learner, trainer=trainer, on_iteration=show)


def evaluate(name: str, policy: Policy) -> None:
    """Show the true returns of a policy."""
    report = evaluate_policy(policy, ENV, episodes=50, seed=10_000)
    print(f"{name}: mean return {report.mean:.0f} ± {report.std:.0f}")


def main(runners: int, seed: int, steps: int, answers: int) -> None:
    shutil.rmtree(RUN, ignore_errors=True)  # rewards of an earlier run
    budget = {"steps": steps, "comparisons": answers, "iterations": 10}
    config = OnlineConfig(env=ENV, sampler="disagreement", seed=seed, **budget)
    evaluate("random", RandomPolicy(gymnasium.make(ENV).action_space, seed))
    learner = RLlibLearner(ppo(runners, seed), ENV, RUN / "rewards")
    on_answers(learner, config)
    evaluate(f"learned from {answers} answers", learner)
    learner.algorithm.stop()
    learner = RLlibLearner(ppo(runners, seed), ENV, RUN / "none", before="environment")
    learner.learn(steps)
    evaluate("learned from the true reward", learner)
    learner.algorithm.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runners", type=int, default=2, help="EnvRunners, each a process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="too few steps to learn much")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with ray.init("local", num_cpus=options.runners, include_dashboard=False, log_to_driver=False):
        steps, answers = (8_000, 20) if options.smoke else (60_000, 150)
        main(options.runners, options.seed, steps, answers)
