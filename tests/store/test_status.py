"""What programs report is one record, which other versions write and read as well."""

import pytest

from preferl.store import FitMetrics, Status
from preferl.store.status import from_json, read_status, to_json, write_status


@pytest.mark.parametrize("record", [Status("fitting", first_at=20, problem="x"), FitMetrics(7)])
def test_what_is_written_is_read(record):
    assert from_json(type(record), to_json(record)) == record


def test_keys_of_other_versions_are_passed_over():
    assert from_json(Status, {"state": "waiting", "mood": "good"}) == Status("waiting")
    assert from_json(FitMetrics, {"answers": 3, "mood": "good"}) == FitMetrics(answers=3)


def test_a_status_in_a_file_is_for_its_owner_and_whole_or_nothing(tmp_path):
    file = tmp_path / "page.status.json"
    assert read_status(file) is None
    write_status(file, Status("serving", link="http://localhost:1/join/a"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_status(file) == Status("serving", link="http://localhost:1/join/a")
    for half in ("", '{"state": "ser', "[]"):
        file.write_text(half)
        assert read_status(file) is None
