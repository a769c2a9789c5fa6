"""A person at a terminal, played by a list of keys."""

import io

import numpy as np
import pytest

from preferl.data import Clips
from preferl.errors import FeedbackError
from preferl.feedback import FeedbackInterrupted, InputEndedError, PromptTeacher
from preferl.feedback.prompt import sparklines


def clips(pairs):
    block = np.arange(pairs * 8.0).reshape(pairs, 2, 4)
    return Clips(block[..., None], block[..., None], np.ones(block.shape, bool), block)


def typing(*keys):
    """Types the keys one after the other, then nobody is there; and the questions put."""
    waiting = list(keys)
    questions = []

    def ask(question):
        questions.append(question)
        if not waiting:
            raise EOFError
        return waiting.pop(0)

    return ask, questions


def hidden(clips, number):
    """Shows nothing."""


def test_keys_mean_left_right_equal_and_cannot_tell(rng):
    ask, questions = typing("l", " R ", "e", "n", "")
    given = PromptTeacher(hidden, ask)(clips(5), rng)
    np.testing.assert_array_equal(given, [1.0, 0.0, 0.5, np.nan, np.nan])
    assert [question.split("]")[0] for question in questions] == [f"[{i}/5" for i in range(1, 6)]


def test_an_unknown_key_is_asked_again(rng):
    ask, questions = typing("x", "left", "l")
    output = io.StringIO()
    assert PromptTeacher(hidden, ask, output)(clips(1), rng).tolist() == [1.0]
    assert len(questions) == 3
    assert len(set(questions)) == 1
    assert "'x' is not one of the keys" in output.getvalue()


def test_stopping_hands_over_the_answers_so_far(rng):
    with pytest.raises(FeedbackInterrupted) as stopped:
        PromptTeacher(hidden, typing("l", "e", "q")[0])(clips(5), rng)
    assert stopped.value.answers.tolist() == [1.0, 0.5]
    assert isinstance(stopped.value, KeyboardInterrupt)


def test_ctrl_c_stops_like_q(rng):
    def ask(question):
        raise KeyboardInterrupt

    with pytest.raises(FeedbackInterrupted) as stopped:
        PromptTeacher(hidden, ask)(clips(2), rng)
    assert len(stopped.value.answers) == 0


def test_the_end_of_input_says_what_to_do(rng):
    with pytest.raises(InputEndedError, match=r"1 of 3 answers.*terminal.*Scripted") as ended:
        PromptTeacher(hidden, typing("r")[0])(clips(3), rng)
    assert isinstance(ended.value, FeedbackError)
    assert ended.value.answers.tolist() == [0.0]


def test_by_default_clips_are_drawn_to_standard_output(rng, capsys):
    PromptTeacher(ask=typing("l")[0])(clips(1), rng)
    shown = capsys.readouterr().out
    assert "left" in shown
    assert "observation 0" in shown
    assert "action 0" in shown
    assert strips(shown, "observation 0")[:2] == ["▁▂▃▄", "▅▆▇█"], "both have one scale"


def test_a_terminal_without_blocks_gets_plain_characters(rng):
    raw = io.BytesIO()
    output = io.TextIOWrapper(raw, encoding="ascii")
    PromptTeacher(ask=typing("l")[0], output=output)(clips(1), rng)
    output.flush()
    assert b"_" in raw.getvalue()


def strips(text, label):
    line = next(line for line in text.splitlines() if line.startswith(label))
    return line.removeprefix(label).split()


def test_padded_and_infinite_steps_are_blank():
    steps = np.array([[9.0, 0.0, 1.0], [np.inf, 1.0, 0.0]])
    mask = np.array([[False, True, True], [True, True, True]])
    shown = Clips(steps[..., None], steps[..., None], mask, steps)
    assert strips(sparklines(shown, levels="ab"), "observation 0") == ["ab", "ba", "0", "to", "1"]


def test_dictionaries_are_drawn_by_key_and_discrete_actions_have_one_line():
    shown = Clips(
        {"arm": np.zeros((2, 3, 2)), "hand": np.zeros((2, 3))},
        np.zeros((2, 3), np.int64),
        np.ones((2, 3), bool),
        np.zeros((2, 3)),
    )
    labels = [line.split("  ")[0].strip() for line in sparklines(shown).splitlines()[1:]]
    assert labels == ["observation arm 0", "observation arm 1", "observation hand 0", "action 0"]


def test_names_of_observations_end_no_prompt_and_command_no_terminal(
    rng,
):
    block = np.arange(8.0).reshape(1, 2, 4)
    seen = {"h\u00f6he\x1b[2J": block[..., None]}
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = Clips(seen, block[..., None], np.ones(block.shape, bool), block)
    assert PromptTeacher(None, typing("l")[0], output)(shown, rng).tolist() == [1.0]
    output.seek(0)
    assert r"observation h?he\x1b[2J 0" in output.read()
