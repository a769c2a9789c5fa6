"""Offline learning in D4RL's U-maze from experience that is recorded here, with controls.

D4RL's own files are not needed. A scripted gait walks an ant from the start to one random cell
after another, with noise of 0.2 in its actions, as Fu et al. 2020 let a trained policy do. The
steps are written in the layout of D4RL's HDF5 files. A scripted teacher without errors answers 500
queries about segments of 50 steps: it prefers the one that comes further along the corridor,
towards the cell of the goal. So the answers say more than the recorded reward, which is 1 at the
goal and 0 elsewhere.

Each seed has answers, a reward and agents of its own; all seeds have the same data. The settings
were fixed before the first run. They are small, since they are those of a few minutes on a
processor core: 20,000 steps, two hidden layers of 64 units, 5,000 updates of each agent. Each row
of `results/antmaze_umaze.csv` is of 10 episodes of one last policy: the share that reached the
goal, and the mean of the furthest places in the corridor. From the start to the middle of the
goal's cell, it has 24 m. After a kill, the same command goes on.

    pip install 'preferl[d4rl,robotics]'
    python recipes/antmaze_umaze.py --seeds 0 1 2
    python recipes/antmaze_umaze.py --summary
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import h5py
import numpy as np
import torch
from result_tables import Row, installed, keep, read

from preferl.data import TASKS, Episodes, save_comparisons
from preferl.data.sources import load_d4rl
from preferl.envs.factory import make_env
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.files import writing
from preferl.offline import IQLConfig, OfflineConfig, run_offline

RESULTS = Path(__file__).parent / "results" / "antmaze_umaze.csv"
KEY = ("condition", "updates", "seed")
TASK = TASKS["antmaze-umaze-diverse-v2"]
CONTROLS = ("true", "zero", "cloning")
SETTINGS = replace(IQLConfig.preset("antmaze"), hidden=(64, 64), batch_size=128, learning_rate=1e-3)
LENGTH = 50
MOST_STEPS = 400
ON = ("gymnasium-robotics", "mujoco", "torch")

CELLS = np.array([(0, 0), (4, 0), (8, 0), (8, 4), (8, 8), (4, 8), (0, 8)], float)
"""Middles of the free cells, from the start to the goal, in metres."""

LEG_ANGLES = np.pi * np.array([0.25, 0.75, 1.25, 1.75])
OUTWARDS = np.stack([np.cos(LEG_ANGLES), np.sin(LEG_ANGLES)], axis=1)
SIDEWAYS = np.stack([-np.sin(LEG_ANGLES), np.cos(LEG_ANGLES)], axis=1)
DOWN = np.array([1, -1, -1, 1])
"""The direction in which each ankle lowers its foot."""
PAIR = np.array([1, -1, 1, -1])
"""Legs on a diagonal step together."""
MOTORS = np.array([3, 0, 1, 2])
"""The leg that each pair of actions moves."""


def corridor_place(places: np.ndarray) -> np.ndarray:
    """Metres along the corridor from the start, of `[..., 2]` places."""
    ends = CELLS[1:]
    way = ends - CELLS[:-1]
    share = ((places[..., None, :] - CELLS[:-1]) * way).sum(axis=-1) / 16
    nearest = CELLS[:-1] + np.clip(share, 0, 1)[..., None] * way
    piece = np.linalg.norm(places[..., None, :] - nearest, axis=-1).argmin(axis=-1)
    along = np.take_along_axis(np.clip(share, 0, 1), piece[..., None], axis=-1)[..., 0]
    return 4 * (piece + along)


def heading(place: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Unit vector from a place towards a target, along the corridor while that is far."""
    metres = corridor_place(place)
    far = corridor_place(target) - metres
    aim = target
    if abs(far) > 3:
        ahead = (metres + 2.5 * np.sign(far)) / 4
        piece = min(int(ahead), len(CELLS) - 2)
        aim = CELLS[piece] + (ahead - piece) * (CELLS[piece + 1] - CELLS[piece])
    return (aim - place) / np.linalg.norm(aim - place)


def gait(observation: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Action of an ant that trots in a direction, and turns back to a yaw of 0.

    It is a function of the observation, without a clock, so that other policies can imitate it. Its
    numbers are the best of 200 that a random search tried, by the metres of 40 steps.
    """
    w, x, y, z = observation[3:7] / np.linalg.norm(observation[3:7])
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    turned = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]]) @ direction
    angles = observation[7:15].reshape(4, 2)
    speeds = observation[21:29].reshape(4, 2)
    swing = PAIR * (SIDEWAYS @ turned)
    phase = 2.4 + np.arctan2(-0.124 * (swing @ speeds[:, 0]), swing @ angles[:, 0])
    hips = (0.84 * swing - 0.5 * yaw * PAIR) * np.cos(phase)
    lowered = 0.16 * PAIR * np.sin(phase - 0.75)
    pulled = 0.384 * PAIR * (OUTWARDS @ turned) * np.cos(phase)
    wanted = np.stack([hips, DOWN * (0.8 + lowered - pulled)], axis=1)
    torques = 38 * (wanted - angles) - 1.3 * speeds
    return np.clip(torques[MOTORS].reshape(8) / 30, -1, 1)


def walks(steps: int) -> Iterator[dict[str, Any]]:
    """Rows of a file of D4RL: the gait walks from the start to one random cell after another."""
    rng = np.random.default_rng(0)
    env = make_env(TASK.env)
    over = True
    for row in range(steps):
        if over:
            observation, _ = env.reset(seed=row)
            begun = row
            target = random_target(rng)
        direction = heading(observation[:2], target)
        action = gait(observation, direction) + 0.2 * rng.standard_normal(8)
        action = np.clip(action, -1, 1)
        following, reward, terminated, *_ = env.step(action)
        timeout = not terminated and row - begun == MOST_STEPS - 1
        yield {
            "observations": observation,
            "next_observations": following,
            "actions": action,
            "rewards": reward,
            "terminals": terminated,
            "timeouts": timeout,
            "infos/goal": env.unwrapped.goal,
            "infos/qpos": observation[:15],
            "infos/qvel": observation[15:],
        }
        over = terminated or timeout
        observation = following
        if np.linalg.norm(following[:2] - target) < 0.5:
            target = random_target(rng)


def random_target(rng: np.random.Generator) -> np.ndarray:
    """A place in a random cell, drawn as D4RL draws goals."""
    cell = CELLS[rng.integers(len(CELLS))]
    return cell + rng.uniform(0, 1, size=2) + rng.uniform(0, 0.5, size=2)


def record(path: Path, steps: int) -> None:
    """Write a file of D4RL, unless there is one."""
    if path.exists():
        return
    rows = list(walks(steps))
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as draft, h5py.File(draft, "w") as file:
        for name in rows[0]:
            kind = bool if name in {"terminals", "timeouts"} else np.float32
            file[name] = np.array([row[name] for row in rows], kind)


def progress(episodes: Episodes) -> np.ndarray:
    """`[T]` metres along the corridor that each step comes nearer to the goal."""
    here = corridor_place(np.asarray(episodes.observations)[:, :2])
    there = corridor_place(np.asarray(episodes.next_observations)[:, :2])
    return (there - here).astype(np.float32)


class FurthestPlace(gymnasium.Wrapper):
    """Pays each metre by which the ant comes further along the corridor than before."""

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(**options)
        self.furthest = 0.0
        return observation, info

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make one step."""
        observation, _, terminated, truncated, info = self.env.step(action)
        before = self.furthest
        self.furthest = max(before, float(corridor_place(observation[:2])))
        return observation, self.furthest - before, terminated, truncated, info


def run_seed(seed: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """Answers, reward and agents of a seed; a row for each condition."""
    data = options.runs / f"umaze-{options.steps}.hdf5"
    record(data, options.steps)
    episodes = load_d4rl(data, task=TASK)
    asked = replace(episodes, rewards=progress(episodes))
    pairs = sample_comparisons(
        asked, options.answers, LENGTH, ScriptedTeacher.oracle(), np.random.default_rng(seed)
    )
    folder = options.runs / f"{options.updates}-{seed}"
    if not folder.with_suffix(".answers").exists():
        save_comparisons(folder.with_suffix(".answers"), pairs)
    config = OfflineConfig(
        demonstrations=str(data),
        comparisons=folder.with_suffix(".answers"),
        task=TASK.name,
        wrappers=(FurthestPlace,),
        iql=SETTINGS,
        steps=options.updates,
        episodes=options.episodes,
        eval_every=0,
        epochs=options.epochs,
        only_controls=CONTROLS,
    )
    finished = folder / "result.json"
    if not finished.exists():
        run_offline(
            config, folder, seeds=(seed,), resume=folder.exists(), processes=1, report_to=()
        )
    result = json.loads(finished.read_text("utf-8"))
    rows: list[dict[str, object]] = []
    for condition, score in result["conditions"].items():
        row: dict[str, object] = {"condition": condition, "updates": options.updates, "seed": seed}
        row["success"] = score["success_rate"]["seeds"][0]
        row["furthest"] = round(score["return"]["seeds"][0], 2)
        row |= {"steps": options.steps, "answers": options.answers, "episodes": options.episodes}
        row["on"] = installed(*ON)
        rows.append(row)
    return rows


def summary(rows: list[Row]) -> None:
    """Means over seeds."""
    for condition in dict.fromkeys(row["condition"] for row in rows):
        chosen = [row for row in rows if row["condition"] == condition]
        success = [float(row["success"]) for row in chosen]
        furthest = [float(row["furthest"]) for row in chosen]
        metres = " ".join(f"{value:.1f}" for value in furthest)
        print(f"{condition} ({len(chosen)}): success {np.mean(success):.0%}, furthest {metres} m")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=20_000, help="that are recorded")
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--updates", type=int, default=5_000, help="of each agent")
    parser.add_argument("--episodes", type=int, default=10, help="of each evaluation")
    parser.add_argument("--epochs", type=int, help="of the reward's fit; the library's by default")
    parser.add_argument("--runs", type=Path, default=Path("runs/antmaze_umaze"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="print a summary, run nothing")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    if options.summary:
        summary(read(options.out))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="preferl-antmaze-") as name:
        if options.smoke:
            options.runs = Path(name) / "runs"
            options.out = Path(name) / "table.csv"
            options.seeds = [0]
            options.steps = 900
            options.answers = 20
            options.updates = 3
            options.episodes = 1
            options.epochs = 1
        for seed in options.seeds:
            stored = {(row["updates"], row["seed"]) for row in read(options.out)}
            if (str(options.updates), str(seed)) not in stored:
                keep(options.out, run_seed(seed, options), KEY)
        summary(read(options.out))


if __name__ == "__main__":
    main()
