"""A data set of several trainings: one recording for each seed, side by side, joined at the end."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from preferl.configs import from_json, to_json
from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import join
from preferl.data.to_minari import require_minari_env, require_new_minari, save_minari
from preferl.envs.checks import require_usable
from preferl.errors import ConfigError, DataError
from preferl.evaluation.rollout import task_env
from preferl.online.configs import DatasetConfig
from preferl.online.dataset import OnProgress, data_id, data_summary, record_dataset
from preferl.reading import read_object
from preferl.reporting import PLACES_BY_DEFAULT, require_places
from preferl.runs import RunFolder, open_run, require_openable, versions
from preferl.runs.executor import Unit, run_units
from preferl.runs.summary import RunSummary

RUN: Final = "run"
"""The folder of a recording, within that of its unit."""


@final
@dataclass(frozen=True)
class DatasetSeeds:
    """All that determines such a data set, as its folder keeps it."""

    config: DatasetConfig
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(set(self.seeds)) == len(self.seeds) >= 1:
            raise ConfigError(
                f"seeds: expected at least one, all different, got {list(self.seeds)}."
            )


def record_seeds(
    config: DatasetConfig,
    out: Path | str,
    seeds: Sequence[int],
    *,
    minari: str | None = None,
    report_to: Sequence[str] = PLACES_BY_DEFAULT,
    processes: int | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Record a data set for each seed, in processes of their own, and join them.

    The folder has the joined data set in `episodes`, seed after seed, and each recording whole in
    `seeds/SEED/run`. One that was killed goes on from its last checkpoint or tier, with `resume`.

    Args:
        config: of each recording; its own seed does not count.
        out: the folder; an older run there moves aside, unless it is resumed.
        seeds: of the trainings.
        minari: id of a Minari data set that is written as well.
        report_to: where metrics of training go.
        processes: at a time; None takes one for each processor core.
        resume: go on with the recording that is in `out`.
        on_progress: called with what is done, how many recordings are, and of how many.

    Returns:
        What `result.json` holds; after Ctrl-C only `interrupted` and what was being done.

    Raises:
        ConfigError: as of `record_dataset`, or seeds that are not different, or an environment or
            policy that other processes cannot make from its name.
        DataError: a recording that failed, with the end of its log.
        ResumeError: the recording to resume is finished, or there is none; nothing was changed.
        StorageError: another run is at work in `out`, or it cannot be written to.
    """
    run = DatasetSeeds(config, tuple(seeds))
    out = Path(out)
    began = time.perf_counter()
    require_openable(out, resume=resume)
    require_places(report_to)
    require_usable(task_env(config), f"environment {config.env_name}")
    if minari is not None:
        require_new_minari(minari)
        require_minari_env(task_env(config)())
    report = on_progress or (lambda *_: None)
    total = len(seeds)
    doing = "recording seeds"
    units = [
        Unit(
            name=f"seed {seed}",
            work=f"{__name__}:{_record.__name__}",
            settings={
                "config": to_json(replace(config, seed=seed)),
                "report_to": list(report_to),
            },
            folder=out / "seeds" / str(seed),
        )
        for seed in run.seeds
    ]
    summary = RunSummary("data", config.env_name, steps_of="recorded steps")
    with open_run(out, config=run, seed=run.seeds[0], resume=resume, summary=summary) as folder:
        done: dict[str, dict[str, Any]] = {}

        def on_done(unit: Unit, result: dict[str, Any]) -> None:
            done[unit.name] = result
            report(doing, len(done), total)

        report(doing, 0, total)
        try:
            failed = run_units(units, on_done, processes=processes)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": doing}
        for name, why in failed.items():
            raise DataError(
                f"recording of {name}: expected a whole one, got {why}. Mend what it names, and "
                "repeat the command with --resume."
            )
        result = _joined(folder, run, [done[unit.name] for unit in units], minari)
        result |= {"seconds": round(time.perf_counter() - began, 2), "interrupted": False}
        folder.result(result, data_summary(result))
        return result


def _record(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """One recording, the work of a unit; its result."""
    run = folder / RUN
    if RunFolder(run).finished:  # killed before the unit counted as done
        return read_object(run / "result.json")
    result = record_dataset(
        from_json(DatasetConfig, settings["config"]),
        run,
        report_to=settings["report_to"],
        resume=(run / "config.json").is_file(),
    )
    if result["interrupted"]:
        raise KeyboardInterrupt
    return result


def _joined(
    folder: RunFolder, run: DatasetSeeds, results: Sequence[dict[str, Any]], minari: str | None
) -> dict[str, Any]:
    """Write the data set of all recordings; what is known of it."""
    parts = [load_episodes(folder.folder / f"seeds/{seed}/{RUN}/episodes") for seed in run.seeds]
    episodes = join(parts)
    first = 0
    tiers = []
    for seed, part, result in zip(run.seeds, parts, results, strict=True):
        tiers += [tier | {"seed": seed, "first": tier["first"] + first} for tier in result["tiers"]]
        first += len(part)
    known = [result["references"] for result in results]
    references = {
        name: None if None in (values := [one[name] for one in known]) else sum(values) / len(known)
        for name in known[0]
    }
    about = {"env": run.config.env_name, "seeds": list(run.seeds), "references": references}
    about |= {"tiers": tiers, "id": data_id(episodes)}
    beside = about | {"versions": versions()}
    save_episodes(folder.path("episodes"), episodes, about=beside)
    if minari is not None:
        env = task_env(run.config)()
        algorithm = results[0]["algorithm"]
        save_minari(episodes, minari, env=env, algorithm=algorithm, about=beside)
    return about | {"minari": minari}
