"""A program in which a person teaches an agent, and which goes on where it was killed.

Every query that the person sees and every answer that they type is a line in FOLDER/events.
"""

import faulthandler
import os
import time
from hashlib import blake2b

import torch

from helpers.tiny_runs import tiny
from preferl.feedback import PromptTeacher
from preferl.online import run_online
from preferl.online.configs import EvaluationConfig

CONFIG = tiny(comparisons=40, iterations=4, initial_steps=300)
EVALUATION = EvaluationConfig(episodes=1, queries=10, oracle=False, clip_steps=0)


def name_of(clips):
    return blake2b(clips.observations.tobytes(), digest_size=8).hexdigest()


def answer_to(name):
    """What a person who makes up their mind by the clips alone types; sometimes they cannot."""
    return "lrelrlrn"[int(name, 16) % 8]


def main(folder, until=None):
    """Go through the run that is begun in the folder; after so many events the person rests."""
    torch.set_num_threads(1)
    stacks = (folder / "stacks").open("w")  # where it is, should it not end
    faulthandler.dump_traceback_later(45, file=stacks)
    file = os.open(folder / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    names = []
    count = 0

    def note(kind):
        nonlocal count
        os.write(file, f"{kind} {names[-1]}\n".encode())
        count += 1

    def show(clips, _):
        names.append(name_of(clips))
        note("shown")

    def ask(_):
        while until is not None and count >= until:
            time.sleep(0.01)  # until somebody ends the program
        note("typed")
        return answer_to(names[-1])

    run_online(
        CONFIG,
        folder / "run",
        evaluation=EVALUATION,
        teacher=PromptTeacher(show=show, ask=ask),
        resume=(folder / "run/config.json").exists(),
    )
