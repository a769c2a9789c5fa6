"""Fixtures that every test may use."""

import logging
import os
import signal
from pathlib import Path
from shutil import which
from uuid import uuid4

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from preferl.registry import LOSSES, PENALTIES

torch.set_num_threads(1)

# A check tries the same examples each time and cannot fail by chance; `make nightly` tries others.
# None fails for being slow: another program may hold it up.
SLOWLY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("check", derandomize=True, **SLOWLY)
settings.register_profile("nightly", max_examples=1000, **SLOWLY)
NIGHTLY = "PREFERL_NIGHTLY" in os.environ
settings.load_profile("nightly" if NIGHTLY else "check")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has pytest in the background. Programs that tests start would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    """Leave tests that take minutes to `make nightly`, and those of a GPU to machines with one."""
    if not NIGHTLY and item.get_closest_marker("nightly"):
        pytest.skip("takes minutes; `make nightly` runs it")
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def no_others():
    """Losses and penalties that a test registers are taken out again."""
    before = {table: table.names() for table in (LOSSES, PENALTIES)}
    yield
    for table, names in before.items():
        for name in set(table.names()) - set(names):
            table.remove(name)


@pytest.fixture(scope="session")
def shared():
    """The folder of shared data; tests that need it skip where it is absent."""
    default = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("PREFERL_SHARED", default))
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data at {folder}; set PREFERL_SHARED to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """An empty store, to be copied: making tables takes longer than most tests."""
    from preferl.store.store import Store  # few tests need a database

    folder = tmp_path_factory.mktemp("empty") / "store"
    Store.open(folder).close()
    return folder


@pytest.fixture(scope="session")
def object_storage():
    """The URL of an S3 server in this process; skips where it is not installed."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it writes a line for each request
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(object_storage, monkeypatch):
    """The URL of a new bucket, which programs that a test starts reach as well."""
    import fsspec

    for name, value in {
        "AWS_ENDPOINT_URL": object_storage,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid4().hex[:12]}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window; its event loop must not outlive the module."""
    program = which("chromium") or which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # few tests need a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
