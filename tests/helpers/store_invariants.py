"""What is true of a store's tables whatever anybody sent, looked up in plain SQL."""

import sqlite3
from collections import Counter, defaultdict
from itertools import pairwise

COUNTED = {"left", "right", "equal", "cannot_tell"}
SIDES = ("first_clip", "second_clip")
PREFERENCES = {"left": 1.0, "right": 0.0, "equal": 0.5}
ROLES = {"annotator", "admin", "spectator"}


class Tables:
    """The rows of a SQLite store, as dictionaries."""

    def __init__(self, file):
        self._file = sqlite3.connect(file)
        self._file.row_factory = sqlite3.Row

    def close(self):
        self._file.close()

    @property
    def version(self):
        """Another number whenever somebody else has written."""
        return self._file.execute("PRAGMA data_version").fetchone()[0]

    def rows(self, table, where="1"):
        return [dict(row) for row in self._file.execute(f"SELECT * FROM {table} WHERE {where}")]

    def last(self, table):
        """The highest number of a row."""
        return self._file.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]

    def by_id(self, table):
        return {row["id"]: row for row in self.rows(table)}

    def damage(self):
        """What SQLite itself finds wrong."""
        found = [tuple(row) for row in self._file.execute("PRAGMA integrity_check")]
        return found[1:] if found[0] == ("ok",) else found

    def dangling(self):
        return [tuple(row) for row in self._file.execute("PRAGMA foreign_key_check")]


def faults(tables):
    """Everything that must not be, in words; empty where all is well."""
    people = tables.by_id("annotator")
    queries = tables.by_id("query")
    answers = sorted(tables.rows("answer"), key=lambda row: row["id"])
    checks = (
        [("damage", what) for what in tables.damage() + tables.dangling()],
        _of_queries(queries, answers, tables.rows("clip"), people),
        _of_leases(tables.rows("lease"), queries, people),
        _of_answers(answers, queries, people),
        _of_ratings(tables.rows("rating"), queries, people),
    )
    return [fault for found in checks for fault in found]


def _latest(answers):
    latest = {}
    for row in answers:
        latest[row["query_id"], row["annotator_id"]] = row["kind"]
    return latest


def _of_queries(queries, answers, clips, people):
    standing = Counter(query for (query, _), kind in _latest(answers).items() if kind in COUNTED)
    stored = {(row["project_id"], row["id"]) for row in clips}
    for number, row in queries.items():
        project = row["project_id"]
        sides = {row["first_clip"], row["second_clip"]}
        wanted = max(row["quorum"] - standing[number], 0) if row["purpose"] == "ask" else 0
        again = queries.get(row["repeat_of"])
        whose = people.get(row["for_annotator"])
        rules = {
            "needed": row["needed"] == wanted,
            "clips": len(sides) == 2 and all((project, side) in stored for side in sides),
            "purpose": row["purpose"] in ("ask", "known", "repeat", "example"),
            "known": (row["known"] is not None) == (row["purpose"] in ("known", "example")),
            "repeat": (row["purpose"] == "repeat") == (again is not None) == (whose is not None),
            "quorum": row["quorum"] >= 1 if row["purpose"] == "ask" else row["quorum"] == 0,
        }
        if again is not None and whose is not None:
            same = {again["first_clip"], again["second_clip"]} == sides
            rules["repeat of"] = same and again["project_id"] == project == whose["project_id"]
        yield from ((f"query {number}", rule) for rule, fine in rules.items() if not fine)


def _of_leases(leases, queries, people):
    held = Counter((row["query_id"], row["annotator_id"]) for row in leases)
    yield from (("two leases", pair) for pair, count in held.items() if count > 1)
    for row in leases:
        query = queries.get(row["query_id"])
        person = people.get(row["annotator_id"])
        if query is None or person is None:
            yield "lease of nobody or nothing", row["token"]
        elif query["project_id"] != person["project_id"] or query["purpose"] == "example":
            yield "lease elsewhere", row["token"]
        elif query["for_annotator"] not in (None, person["id"]):
            yield "lease of another one's repeat", row["token"]
        if not row["granted_at"] <= row["expires_at"]:
            yield "lease that ends before it begins", row["token"]


def _of_answers(answers, queries, people):
    keys = Counter(row["key"] for row in answers)
    yield from (("two answers of a key", key) for key, count in keys.items() if count > 1)
    kinds_of = defaultdict(list)
    for row in answers:
        query = queries[row["query_id"]]
        person = people[row["annotator_id"]]
        kinds_of[row["query_id"], row["annotator_id"]].append(row["kind"])
        seen = PREFERENCES.get(row["kind"])
        right = seen if seen is None or not row["swapped"] else 1 - seen
        rules = {
            "preference": row["preference"] == right,
            "key": 8 <= len(row["key"]) <= 100,
            "response_ms": row["response_ms"] is None or 0 <= row["response_ms"] <= 7 * 86_400_000,
            "project": row["project_id"] == query["project_id"] == person["project_id"],
            "whose": query["for_annotator"] in (None, row["annotator_id"]),
            "example": query["purpose"] != "example",
            "time": row["granted_at"] is None or row["granted_at"] <= row["answered_at"],
        }
        yield from ((f"answer {row['id']}", rule) for rule, fine in rules.items() if not fine)
    for pair, kinds in kinds_of.items():
        if kinds[0] == "retract" or ("retract", "retract") in pairwise(kinds):
            yield "retracted what was not said", pair
        if any(before in COUNTED and kind != "retract" for before, kind in pairwise(kinds)):
            yield "answered twice", pair


def _of_ratings(ratings, queries, people):
    shown = {(row["project_id"], row[side]) for row in queries.values() for side in SIDES}
    changes = Counter()
    for row in ratings:
        changes[row["annotator_id"]] += -1 if row["undo"] else 1
        rules = {
            "key": 8 <= len(row["key"]) <= 100,
            "clip": (row["project_id"], row["clip_id"]) in shown,
            "project": row["project_id"] == people[row["annotator_id"]]["project_id"],
            "undone once": changes[row["annotator_id"]] >= 0,
        }
        yield from ((f"rating {row['id']}", rule) for rule, fine in rules.items() if not fine)
