"""An agent in an environment of one's own, taught by whoever answers in a browser.

python examples/answer_yourself.py [--smoke]
preferl annotate serve --store runs/courtyard-labels    (in a second terminal)

`preferl online run --env courtyard:Courtyard --people` does the same by one command. A script of
your own can do more: other settings, another learner, or a teacher beside the people.
"""

import argparse
from math import inf
from typing import Any

import numpy as np
from custom_environment import Courtyard

from preferl import (
    OnlineConfig,
    PPOConfig,
    Store,
    StoredFeedback,
    learn_from_preferences,
    save_policy,
    save_reward,
)
from preferl.feedback import ScriptedTeacher
from preferl.online.service.scripted_answers import ScriptedAnswers


def main(*, smoke: bool) -> None:
    size: dict[str, Any] = {"steps": 20_000, "comparisons": 100}
    if smoke:
        size = {"initial_steps": 400, "steps": 2_000, "iterations": 2, "comparisons": 16}
    config = OnlineConfig(
        env=Courtyard,
        states=True,  # records what people see
        segment_length=10,
        algorithm=PPOConfig(n_steps=128),
        **size,
    )
    with Store.open("runs/courtyard-labels") as store:
        store.projects.create(
            "courtyard",
            exist_ok=True,  # when the script is started again
            question="Which robot gets closer to its charger?",
            fps=15,  # pictures per second
            frames={"kind": "recorded"},  # how clips are drawn
            budget=config.comparisons,  # the page is done after so many answers
            repeat_share=0,  # asks no query twice
        )
        feedback = StoredFeedback(store, "courtyard", patience=inf, open_queries=6)
        if smoke:  # a script answers, whenever people are waited for
            oracle = ScriptedTeacher.oracle()
            script = ScriptedAnswers(feedback, oracle, np.random.default_rng(0))
            feedback.on_wait = lambda _: script.answer()
        report = learn_from_preferences(config, feedback=feedback, checkpoints="runs/courtyard-run")
    if report.interrupted:  # by Ctrl-C
        print("Start the script again to go on; the answers are kept.")
        return
    save_policy("runs/courtyard-policy", report.learner.algorithm, config.algorithm)
    save_reward("runs/courtyard-reward", report.reward)
    print(report.iterations[-1].mean_return, "in the last iteration; see runs/courtyard-policy")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a script answers a few queries")
    main(smoke=parser.parse_args().smoke)
