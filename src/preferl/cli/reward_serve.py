"""`preferl reward serve`: the program that fits rewards to people's answers as they arrive."""

import logging
import signal
import threading
from dataclasses import dataclass, field
from typing import Annotated

from preferl.cli.options import Labels, ReportTo, StoreConfig, Trust, import_trusted, opened
from preferl.cli.parsing import Mark
from preferl.online.service.service_config import ServiceConfig
from preferl.printing import get_logger

starting_point = import_trusted


@dataclass(frozen=True)
class RewardServeConfig:
    """Fit a reward to people's answers as they arrive, and publish each version, until Ctrl-C.

    You may kill and restart it at any time; it continues where it was.

    For example
      preferl reward serve --out runs/rewards
      preferl reward serve --store runs/labels --project door --out runs/rewards --model pt

    Attributes:
        service: what to fit, when, and where to publish.
        labels: where labels are.
        report_to: where metrics of each version go, inside `out`: jsonl, tensorboard, wandb;
            nowhere by default.
        trust: module of yours that registers a reward model for `service.reward.model`.
    """

    service: Annotated[ServiceConfig, Mark(flat="all")]
    labels: Labels = field(default_factory=StoreConfig)
    report_to: ReportTo = ()
    trust: Trust = ()


def reward_serve(config: RewardServeConfig) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    from preferl.online.service.reward_service import serve_reward

    logger = get_logger(__name__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    stop = threading.Event()
    # A handler runs between two steps of this thread, which may hold the event's lock.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    with opened(config.labels) as (store, project):
        logger.info("Waits for answers to %s; rewards go to %s.", project.slug, config.service.out)
        version = serve_reward(
            config.service, store, project.id, stop=stop, report_to=config.report_to
        )
    logger.info("Stopped. The latest reward is version %d.", version)
