import gzip
import pickle
import sys
from types import ModuleType

import numpy as np
import pytest
from sqlalchemy import select

from preferl.cli.main import main
from preferl.store.feedback import StoredFeedback
from preferl.store.schema import Answer
from preferl.store.store import Store


class PrefDB:
    def __init__(self, segments, prefs):
        self.segments = segments
        self.prefs = prefs


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A database of four preferences about three clips of pictures."""
    module = ModuleType("pref_db")
    module.PrefDB = PrefDB
    monkeypatch.setattr(PrefDB, "__module__", "pref_db")
    monkeypatch.setitem(sys.modules, "pref_db", module)
    rng = np.random.default_rng(0)
    clips = {n: rng.integers(0, 255, (5, 12, 12, 1), np.uint8) for n in range(3)}
    preferences = [(0, 1, (1, 0)), (1, 2, (0, 1)), (2, 0, (0.5, 0.5)), (0, 1, (1, 0))]
    file = tmp_path / "train.pkl.gz"
    with gzip.open(file, "wb") as out:
        pickle.dump(PrefDB(clips, preferences), out)
    return file


def command(*words):
    with pytest.raises(SystemExit) as done:
        main(words)
    assert done.value.code == 0


def test_what_another_project_saved_is_imported_once(saved, tmp_path, capsys):
    labels = ["--store", str(tmp_path / "labels")]
    command("annotate", "import", str(saved), "--new", "--name", "me", *labels)
    assert "4 answers by me about 3 clips are new" in capsys.readouterr().out
    command("annotate", "import", str(saved), "--name", "me", *labels)
    assert "0 answers by me about 3 clips are new, 4 were there" in capsys.readouterr().out
    with Store.open(tmp_path / "labels") as store:
        comparisons = StoredFeedback(store).comparisons()
        with store.database.read() as session:
            assert len(session.scalars(select(Answer)).all()) == 4
    assert sorted(comparisons.preference.tolist()) == [0.0, 0.5, 1.0, 1.0]
    assert comparisons.segments.observations.shape[1:] == (12, 12, 1)
