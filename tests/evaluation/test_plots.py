import base64
import io
import re
from xml.etree import ElementTree as ET

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from preferl.errors import DataError
from preferl.evaluation import Calibration
from preferl.evaluation.plots import (
    VARIABLES,
    Curve,
    accuracy_bars,
    attention_map,
    calibration_diagram,
    condition_scores,
    episode_returns,
    importance_bar,
    learning_curves,
    reward_over_clip,
)

STEPS = np.arange(0, 50_001, 10_000)
VALUES = np.array([-1500.0, -1200, -800, -600, -300, -200])

DRAWINGS = {
    "curve": lambda: learning_curves([Curve("taught", STEPS, VALUES)]),
    "curves": lambda: learning_curves(
        [Curve("taught", STEPS, VALUES), Curve("other", STEPS, np.stack([VALUES, VALUES * 0.9]))],
        references={"oracle": -150.0, "taught": -160.0, "random": -1200.0},
    ),
    "gaps": lambda: learning_curves([Curve("taught", STEPS, np.full(6, np.nan))]),
    "clip": lambda: reward_over_clip(VALUES),
    "members": lambda: reward_over_clip(np.stack([VALUES, VALUES * 2]), np.zeros(6)),
    "calibration": lambda: calibration_diagram(Calibration((0.2, 0.9), (0.3, 1.0), (5, 50), 0.1)),
    "uncalibrated": lambda: calibration_diagram(Calibration((), (), (), None)),
    "accuracy": lambda: accuracy_bars({"learned": (0.9, (0.8, 0.95))}),
    "many": lambda: accuracy_bars({str(i): (0.5, (0.4, 0.6)) for i in range(9)}),
    "returns": lambda: episode_returns({"random": VALUES, "taught": VALUES[:1]}, emphasis="taught"),
    "conditions": lambda: condition_scores(
        {"learned": VALUES, "zero": VALUES[:1]}, emphasis="learned"
    ),
    "attention": lambda: attention_map(np.array([[0.5, 0.5], [0.0, 1.0]])),
    "importance": lambda: importance_bar(np.array([0.1, 0.2, 0.7]), offset=10),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_xml_that_a_page_can_colour(name):
    svg = DRAWINGS[name]()
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "viewBox" in root.attrib
    for unwanted in ("<style", "<metadata", "DOCTYPE", "DejaVu", "#ffffff", "#000000"):
        assert unwanted not in svg
    bare = re.sub(r"var\([^)]*\)", "", svg)
    assert not [colour for colour in VARIABLES if colour in bare]


def test_labels_are_text_and_escaped():
    svg = learning_curves(
        [Curve("a <b> & c", STEPS, VALUES), Curve("d", STEPS, VALUES)], references={"oracle": -9.0}
    )
    texts = [element.text for element in ET.fromstring(svg).iter() if element.text]
    assert {"a <b> & c", "oracle", "environment steps", "20k"} <= set(texts)


def test_the_true_reward_takes_on_the_learned_scale():
    learned = np.array([1.0, 3.0])
    same = reward_over_clip(learned, learned)
    assert reward_over_clip(learned, np.array([0.0, 10.0])) == same
    assert reward_over_clip(learned, np.zeros(2)) == reward_over_clip(learned, np.ones(2)) != same


def test_drawing_leaves_global_state_alone():
    before = dict(matplotlib.rcParams)
    DRAWINGS["curves"]()
    assert dict(matplotlib.rcParams) == before


def test_nothing_to_draw_is_refused():
    with pytest.raises(DataError, match="curves"):
        learning_curves([])
    with pytest.raises(DataError, match="'taught'"):
        learning_curves([Curve("taught", STEPS, VALUES[:3])])
    with pytest.raises(DataError, match="true reward"):
        reward_over_clip(VALUES, np.zeros(3))
    with pytest.raises(DataError, match="accuracies"):
        accuracy_bars([])
    with pytest.raises(DataError, match="returns"):
        episode_returns({})
    for draw, none in (
        (condition_scores, {}),
        (attention_map, np.zeros((2, 3))),
        (importance_bar, np.zeros((2, 2))),
    ):
        with pytest.raises(DataError):
            draw(none)


@pytest.mark.parametrize(("runs", "most"), [(1, 100), (2, 10)])
def test_a_band_of_two_runs_does_not_flatten_their_lines(runs, most):
    values = np.array([[1.0, 2.0], [3.0, 4.0]])[:runs]
    ends = np.array([[-90.0] * 2, [90.0] * 2])
    svg = learning_curves([Curve("wide", np.array([0, 1]), values, ends)])
    ticks = [float(text.replace("−", "-")) for text in re.findall(r">([−\d.]+)</text>", svg)]
    assert most / 2 < max(ticks) <= most


def test_attention_is_darker_where_more_is_looked_at():
    svg = attention_map(np.array([[0.5, 0.5], [0.0, 1.0]]))
    picture = re.search(r'data:image/png;base64,([^"]+)"', svg)
    assert picture is not None
    pixels = png(picture[1])[::-1]  # SVG puts pictures upside down and turns them over
    height = pixels.shape[0] // 2
    width = pixels.shape[1] // 2
    opacity = [pixels[y, x, 3] for y in (1, height + 1) for x in (1, width + 1)]
    np.testing.assert_allclose(opacity, [0.5, 0.5, 0, 1], atol=0.01)


def png(encoded):
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(encoded)))


@pytest.mark.parametrize("label", [r"$\foo$", "_first", "{}"])
def test_names_are_drawn_as_they_are(label):
    curves = [Curve(label, STEPS, VALUES), Curve("other", STEPS, VALUES)]
    drawings = (
        learning_curves(curves, references={label: -150.0}, y_label=label),
        accuracy_bars({label: (0.9, (0.8, 0.95))}),
        episode_returns({label: VALUES}, emphasis=label),
        condition_scores({label: VALUES}, emphasis=label),
    )
    for svg in drawings:
        texts = "".join(ET.fromstring(svg).itertext())
        assert label in texts
    assert "".join(ET.fromstring(drawings[0]).itertext()).count(label) == 3
