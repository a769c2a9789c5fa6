"""A program in which a person teaches an agent, and which goes on where it was killed.

python answering_run.py FOLDER

Every query that the person sees is a line in FOLDER/shown, and so is what they answer.
"""

import os
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

from preferl.feedback import PromptTeacher
from preferl.models import MLPRewardConfig
from preferl.online import JudgeConfig, OnlineConfig, PPOConfig, run_online, use_threads
from preferl.training import RewardTrainerConfig

CONFIG = OnlineConfig(
    environments=2,
    steps=1_000,
    comparisons=40,
    turns=4,
    segment_length=10,
    initial_steps=300,
    algorithm=PPOConfig(n_steps=50, batch_size=50, n_epochs=1),
    model=MLPRewardConfig(hidden=(8,), members=2),
    trainer=RewardTrainerConfig(epochs=1),
)
JUDGE = JudgeConfig(episodes=1, questions=10, oracle=False, clip_steps=0)


def name_of(clips: Any) -> str:
    return blake2b(clips.observations.tobytes(), digest_size=8).hexdigest()


def answer_to(name: str) -> str:
    """What a person who makes up their mind by the clips alone types; sometimes they cannot."""
    return "lrelrlrn"[int(name, 16) % 8]


def main(folder: Path) -> None:
    use_threads(1)
    file = os.open(folder / "shown", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen = [""]

    def show(clips: Any, _: int) -> None:
        seen[0] = name_of(clips)
        os.write(file, f"{seen[0]}\n".encode())

    run_online(
        CONFIG,
        folder / "run",
        judge=JUDGE,
        teacher=PromptTeacher(show=show, ask=lambda _: answer_to(seen[0])),
        resume=(folder / "run/config.json").exists(),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
