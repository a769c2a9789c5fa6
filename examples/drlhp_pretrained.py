"""The rewards of a model that was trained before; nothing is asked and nothing is fitted.

python examples/drlhp_pretrained.py [--smoke]
"""

import argparse

import gymnasium
from drlhp_collect import ENV, collect
from drlhp_train import REWARDS, train
from stable_baselines3 import PPO

from preferl import HumanPreferencesEnvWrapper, evaluate_policy


def main(steps: int) -> None:
    env = HumanPreferencesEnvWrapper(
        gymnasium.make(ENV),
        collect_prefs=False,
        pretrained_reward_predictor_dir=REWARDS,
    )
    print(f"computes reward version {env.reward_version} from the first step")
    agent = PPO("MlpPolicy", env, n_steps=256, gamma=0.9, learning_rate=1e-3, device="cpu")
    agent.learn(steps)
    env.close()
    evaluated = evaluate_policy(agent, ENV, episodes=20, seed=1)
    low, high = evaluated.interval
    print(f"return by the environment's reward: {evaluated.mean:,.0f} ({low:,.0f} to {high:,.0f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="too few steps to learn much")
    smoke = parser.parse_args().smoke
    if smoke:
        collect(20, smoke=True)
        train(epochs=2, every=2)
    main(512 if smoke else 100_000)
