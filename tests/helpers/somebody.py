"""Somebody who answers whatever is asked in a store, in a thread of their own."""

import math
import threading
import time

from helpers.waiting import wait_until
from preferl.store import Store


class Somebody(threading.Thread):
    """Answers whatever is asked in the newest project of a store, so many times.

    After `rests_after` answers it goes on once there is a reward.
    """

    def __init__(self, labels, most=math.inf, rests_after=math.inf):
        super().__init__()
        self.labels = labels
        self.most = most
        self.rests_after = rests_after
        self.given = 0
        self.done = threading.Event()
        self.had_enough = threading.Event()
        self.open_after_reward = []  # pairs, whenever a reward was just published

    def run(self):
        wait_until((self.labels / "labels.db").is_file, "no labels were made")
        with Store.open(self.labels) as store:
            projects = wait_until(store.projects.all, "no project was made")
            project = projects[-1]
            known = {person.name: person for person in store.people.all(project.id)}
            ann = known.get("Ann") or store.people.invite(project.id, "Ann").annotator
            while not self.done.wait(0.05):
                rewards = len(store.reports.rewards(project.id))
                if rewards > len(self.open_after_reward):
                    self.open_after_reward.append(store.reports.open(project.id))
                if self.given >= self.most:
                    self.had_enough.set()
                rests = self.given >= self.rests_after and not rewards
                if self.given >= self.most or rests:
                    continue
                for question in store.queue.claim(project.id, ann.id, 1).queries:
                    key = f"answer-{time.monotonic_ns()}"
                    store.queue.answer(ann.id, question.token, key, "left")
                    self.given += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()
