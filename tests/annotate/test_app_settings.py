"""Where the page may be served, and to whom."""

import pytest

from preferl.annotate import AnnotateSettings
from preferl.errors import ConfigError

LONG = "x" * 32


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_this_machine_needs_no_secret(host):
    assert AnnotateSettings(host=host, secret=None).only_here


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "label.example.org"])
def test_other_machines_need_a_long_secret(host):
    for secret in (None, "", "x" * 31):
        with pytest.raises(ConfigError, match="PREFERL_SECRET"):
            AnnotateSettings(host=host, secret=secret)
    assert not AnnotateSettings(host=host, secret=LONG).only_here


def test_the_secret_is_taken_from_the_environment_and_never_shown(monkeypatch):
    monkeypatch.setenv("PREFERL_SECRET", LONG)
    settings = AnnotateSettings(host="0.0.0.0")
    assert settings.secret == LONG
    assert LONG not in repr(settings)


def test_names_that_are_admitted():
    settings = AnnotateSettings(
        hosts=("Desk.local",), public_url="https://label.example.org/", secret=None
    )
    for name in ("localhost", "127.0.0.1", "[::1]", "10.0.0.7", "desk.local", "label.example.org"):
        assert settings.admits(name), name
    for name in ("", "evil.example", "label.example.org.evil.example", "127.0.0.1.nip.example"):
        assert not settings.admits(name), name


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 70_000},
        {"poll_seconds": 0},
        {"largest_request": 1},
        {"public_url": "label.example.org"},
        {"public_url": "javascript:alert(1)"},
        {"secret": "guessed"},
    ],
    ids=str,
)
def test_settings_out_of_range(wrong):
    with pytest.raises(ConfigError):
        AnnotateSettings(**({"secret": None} | wrong))
