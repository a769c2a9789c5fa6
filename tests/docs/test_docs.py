"""README and docs: links resolve, code runs, commands exist; every example runs."""

import contextlib
import csv
import io
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from preferl import registry
from preferl.cli.main import COMMANDS, main
from preferl.presets import measured_shares

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {ROOT / "examples/own_training_loop.py"})
"""All but one that `test_line_counts.py` runs."""

LEARNING = {
    "README.md",
    "docs/quickstart.md",
    "docs/algorithms/drlhp.md",
    "docs/how-to/environment.md",
    "docs/migrate/imitation.md",
    "docs/how-to/resume.md",
    "docs/tutorials/offline.md",
    "docs/tutorials/while-training.md",
}
"""Pages whose code trains agents."""

TEACHING = ("README.md", "docs/quickstart.md")
"""Pages whose code evaluates an agent of Pendulum-v1 that it has taught, as `returns`."""

FENCE = re.compile(
    r"(?P<skip><!-- skip: .+? -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)
COMMAND = re.compile(r"(?:^|`)(?:\$ )?(preferl(?: +[^`\n#]+)?)", re.M)


def name(path):
    return str(path.relative_to(ROOT))


def blocks(text, *languages):
    """The code of fenced blocks in these languages that no comment skips."""
    found = FENCE.finditer(text)
    return [m["code"] for m in found if m["language"] in languages and not m["skip"]]


def prose(text):
    return FENCE.sub("", text)


def anchors(text):
    """GitHub's names for the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page, text):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        found = file.exists()
        if found and anchor:
            found = anchor in anchors(text if file == page else file.read_text("utf-8"))
        if not found:
            broken.append(target)
    return broken


def commands(text):
    """Command lines of `preferl` in shell blocks and in inline code."""
    shell = "\n".join(blocks(text, "sh", "bash", "console")).replace("\\\n", " ")
    inline = re.findall(r"`(preferl [^`]+)`", prose(text).replace("\n", " "))
    return [m[1].strip() for m in COMMAND.finditer(shell)] + inline


@cache
def help_of(command):
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    return out.getvalue()


def unknown_words(line):
    """Words of a command line that `--help` does not know."""
    words = shlex.split(line)[1:]
    named = [name for name in COMMANDS if words[: len(name.split())] == name.split()]
    if not named:
        return [] if words and words[0] in ("--help", "--version", "COMMAND") else words[:2]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    parts = {option.partition(".")[0] for option in options if "." in option}
    chosen = [f"{one} {two}" for one, two in pairwise(words) if one in parts]
    known = set(re.findall(r"--[\w.-]+", help_of(" ".join([named[0], *chosen]))))
    return [option for option in options if option not in known]


@cache
def is_importable(dotted):
    package, _, last = dotted.rpartition(".")
    try:
        if hasattr(import_module(package), last):
            return True
        import_module(dotted)
    except ImportError as error:  # another library may have an environment of its own
        return not (error.name or "preferl").startswith("preferl")
    return True


def missing_names(text):
    """Dotted names in inline code, `preferl.x.Y`, that cannot be imported."""
    names = re.findall(r"`(preferl(?:\.\w+)+)[`(]", text)
    return [dotted for dotted in names if not is_importable(dotted)]


@pytest.fixture(scope="module")
def texts():
    """The text of each page, by its path."""
    return {page: page.read_text("utf-8") for page in PAGES}


def test_links_resolve(texts):
    broken = {name(page): broken_links(page, text) for page, text in texts.items()}
    assert {page: links for page, links in broken.items() if links} == {}


def test_commands_exist(texts):
    wrong = {
        (name(page), line): unknown_words(line)
        for page, text in texts.items()
        for line in commands(text)
    }
    assert {line: words for line, words in wrong.items() if words} == {}


def test_make_targets_exist(texts):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page, text in texts.items():
        shell = "\n".join(blocks(text, "sh", "bash", "console"))
        named = re.findall(r"^make ([a-z]+)", shell, re.M) + re.findall(r"`make ([a-z]+)`", text)
        assert set(named) <= targets, name(page)


def test_names_exist(texts):
    missing = {name(page): missing_names(text) for page, text in texts.items()}
    assert {page: names for page, names in missing.items() if names} == {}


PAGES_WITH_CODE = [
    pytest.param(page, id=name(page), marks=[pytest.mark.slow] if name(page) in LEARNING else [])
    for page in PAGES
    if blocks(page.read_text("utf-8"), "python")
]


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for one in vars(registry).values():
        if isinstance(one, registry.Registry):  # what a page registers is its own
            monkeypatch.setattr(one, "_entries", dict(one._entries))
    namespace = {"__name__": "__main__"}
    for code in blocks(page.read_text("utf-8"), "python"):
        exec(compile(code, name(page), "exec"), namespace)
    if name(page) in TEACHING:  # policies that act at random return -1,200
        assert namespace["returns"].mean > -300


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", example, "--smoke"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if example.name == "custom_environment.py":
        assert (tmp_path / "runs/courtyard/report.html").is_file()


def rows_of(recipe):
    """The rows of a recipe's CSV."""
    text = (ROOT / f"recipes/results/{recipe}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def grouped(rows, *names):
    """Rows by their values in some columns."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def percent(share, digits=1):
    return f"{share:.{digits}%}".replace("%", " %")


def percentages(row, *names):
    return [percent(float(row[name])) for name in names]


def numbers(rows, name):
    return [float(row[name]) for row in rows]


def results_table(recipe):
    """The lines that a page shows for rewards of the door."""
    for row in rows_of(recipe):
        accuracy, low, high = percentages(row, "accuracy", "low", "high")
        (within,) = percentages(row, "accuracy_within_episodes")
        rank = f"{float(row['spearman']):.2f} ± {float(row['spearman_deviation']):.2f}"
        rank = "–" if rank.startswith("nan") else rank
        reward = row["reward"].replace(" x ", " × ")
        span = f"{low} to {high}"
        yield f"| {reward} | {row['split']} | {accuracy} | {span} | {within} | {rank} |"


def conditions_table(recipe):
    """The lines that a page shows for the conditions of an offline recipe."""
    for (condition,), rows in grouped(rows_of(recipe), "condition").items():
        scores = numbers(rows, "score")
        spread = f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}"
        success = percent(np.mean(numbers(rows, "success")), 0)
        yield f"| {condition} | {spread} | {', '.join(f'{s:.1f}' for s in scores)} | {success} |"


def sweep_table():
    """The lines that a page shows for the recipe of the sweep."""
    for (puck, condition), rows in grouped(rows_of("metaworld_sweep"), "puck", "condition").items():
        rates = numbers(rows, "success")
        seeds = ", ".join(percent(rate, 0) for rate in rates)
        returns = np.mean(numbers(rows, "return"))
        yield f"| {puck} | {condition} | {percent(np.mean(rates), 0)} | {seeds} | {returns:.0f} |"


def answers_table():
    """The lines that a page shows for rewards of the door fitted to few answers and many."""
    for row in rows_of("door_answers"):
        accuracy, low, high, least, most = percentages(
            row, "accuracy", "low", "high", "least", "most"
        )
        answers = f"{int(row['answers']):,}"
        yield f"| {answers} | {accuracy} | {low} to {high} | {least} to {most} |"


def demo_table():
    """The lines that a page shows for the agents of the demo, by teacher and range of seeds."""
    rows = [row | {"fresh": int(row["seed"]) >= 200} for row in rows_of("demo")]
    for (teacher, _), agents in grouped(rows, "teacher", "fresh").items():
        means = numbers(agents, "mean")
        seeds = ", ".join(f"{mean:,.0f}" for mean in means)
        label = f"{teacher}, {agents[0]['seed']} to {agents[-1]['seed']}"
        line = f"| {label} | {np.median(means):,.0f} | {min(means):,.0f} | {seeds} |"
        yield line.replace("-", "−")


def models_table():
    """The lines that the page of settings shows for reward models of the door."""
    for row in [*rows_of("door_human_reward"), *rows_of("door_reward_models")]:
        if row["split"] == "demonstration" and "," not in row["reward"]:
            accuracy, low, high = percentages(row, "accuracy", "low", "high")
            yield f"| {accuracy} ({low} to {high}) | {float(row['seconds_per_fit']):.1f} |"


def test_pages_show_what_was_measured():
    door = [*results_table("door_human_reward"), *results_table("door_reward_models")]
    transformers = list(conditions_table("dt_door_human"))
    measured = {
        "algorithms/label-files": door,
        "choosing-settings": list(models_table()),
        "how-many-answers": list(answers_table()),
        "algorithms/drlhp": list(demo_table()),
        "offline-results": [*conditions_table("pt_door_human"), *sweep_table()],
        "algorithms/decision-transformer": transformers,
    }
    shown = {page: (ROOT / f"docs/{page}.md").read_text("utf-8") for page in measured}
    for page, lines in measured.items():
        assert [line for line in lines if line not in shown[page]] == [], page
    sizes = [len(lines) for lines in measured.values()]
    assert sizes[1:] == [5, 7, len(measured["algorithms/drlhp"]), 7 + 6, 10]
    models = re.findall(r"^\| (?:mlp|linear|mr|nmr|pt)", shown["algorithms/label-files"], re.M)
    assert len(models) == len(door)
    conditions = re.findall(
        r"^\| (?:cloning|dtr? \w+) \|", shown["algorithms/decision-transformer"], re.M
    )
    assert len(conditions) == len(transformers)


def test_page_shows_rewards_from_few_answers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    from few_answers import RESULTS, read, summary

    lines = list(summary(read(RESULTS / "few_answers.csv"), "accuracy"))
    shown = (ROOT / "docs/how-many-answers.md").read_text("utf-8")
    assert lines
    assert [line for line in lines if line not in shown] == []


def test_shares_in_the_package_are_those_of_the_stored_agents(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    from how_many_answers import online, pendulum, shares_of, written

    rows = list(written(shares_of({"pendulum": pendulum(), **online()})))
    packaged = [
        asdict(share) for env in {row["env"] for row in rows} for share in measured_shares(env)
    ]
    assert len(rows) >= 5
    assert sorted(packaged, key=str) == sorted(rows, key=str)
