"""Units on a cluster of Ray: three machines, which here are programs on this one."""

import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from helpers.unit_works import stop_first, unit
from helpers.waiting import wait_until
from preferl.errors import ConfigError
from preferl.runs.executor import DONE, LOG
from preferl.runs.ray_cluster import executor_of

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

MEMORY = 80 * 2**20  # bytes for objects on each machine: the least that Ray takes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose head does no units, with two machines of one core each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        patch.setenv("RAY_TMPDIR", folder)  # short: addresses of sockets have 107 characters
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("RAY_worker_niceness", "0")  # beside other tests, Ray's 15 takes minutes
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
        machines = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                machines.add_node(num_cpus=1, object_store_memory=MEMORY)
            yield machines
        finally:
            machines.shutdown()


def results(units, cluster):
    found = {}
    failed = executor_of(cluster.address)(units, lambda one, got: found.update({one.name: got}))
    return found, failed


def test_each_unit_is_done_once_and_failed_ones_are_named(cluster, tmp_path):
    units = [unit(tmp_path, 2), unit(tmp_path, 1, "fail"), unit(tmp_path, 1, "threads")]
    for _ in range(2):
        found, failed = results(units, cluster)
        assert found == {"square 2": 4, "threads 1": "1"}
        assert [*failed] == ["fail 1"]
        assert failed["fail 1"].endswith("ValueError: number 1 cannot be done")
    assert (units[0].folder / "calls").read_text() == "called\n"
    assert (units[2].folder / LOG).read_text() == "printed into the log\n"


def test_modules_of_the_current_folder_stay_off_the_path_of_workers(cluster, tmp_path, monkeypatch):
    mark = tmp_path / "imported"
    (tmp_path / "safetensors.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    one = unit(tmp_path, 3)
    assert results([one], cluster) == ({one.name: 9}, {})
    assert not mark.exists()


def test_ctrl_c_interrupts_units_under_way(cluster, tmp_path):
    units = [unit(tmp_path, 1, "wait"), unit(tmp_path, 2)]

    with pytest.raises(KeyboardInterrupt):
        executor_of(cluster.address)(units, stop_first(units))
    assert (units[0].folder / "interrupted").exists()
    assert not (units[0].folder / DONE).exists()


def test_a_unit_goes_on_elsewhere_when_its_machine_is_lost(cluster, tmp_path):
    one = unit(tmp_path, 1, "lose_its_machine")

    def lose_machine():
        begun = one.folder / "begun"
        worker = Path("/proc", wait_until(lambda: begun.exists() and begun.read_text()), "stat")
        raylet = int(worker.read_text().rpartition(")")[2].split()[1])
        (machine,) = (m for m in cluster.worker_nodes if raylet_of(m) == raylet)
        cluster.remove_node(machine, allow_graceful=False)

    thread = threading.Thread(target=lose_machine)
    thread.start()
    try:
        assert results([one], cluster) == ({one.name: "went on"}, {})
    finally:
        thread.join()


def raylet_of(machine):
    (raylet,) = machine.all_processes["raylet"]
    return raylet.process.pid


def test_a_cluster_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cluster: expected the address of a Ray cluster"):
        executor_of("127.0.0.1:1")([unit(tmp_path, 1)])
    with pytest.raises(ConfigError, match="processes: expected none for a cluster"):
        executor_of("auto", processes=2)
