"""Folders in object storage: what is sent is fetched as it was, and nothing else is."""

import zipfile

import pytest

from preferl.errors import ConfigError, StorageError
from preferl.remote import SyncedFolder


@pytest.fixture
def machines(bucket, tmp_path, monkeypatch):
    """Opens the same folder of a new bucket as machines do that share nothing else."""

    def machine(name, folder="rewards"):
        monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / name))
        return SyncedFolder(f"{bucket}/{folder}")

    return machine


def write(folder, name, content=b"one", **how):
    with folder.writing(name, **how) as draft:
        if name.endswith(".mp4"):
            draft.write_bytes(content)
        else:
            (draft / "within").mkdir(parents=True)
            (draft / "within" / "a.npy").write_bytes(content)
            (draft / "about.json").write_text("{}")


@pytest.mark.parametrize("name", ["00001", "videos/1/a.mp4", "clips/1/abc"])
def test_others_fetch_what_was_sent(machines, name):
    here = machines("here")
    there = machines("there")
    assert not there.fetch(name).exists(), "nothing yet, and no error"
    write(here, name)
    found = there.fetch(name)
    file = found if found.is_file() else found / "within" / "a.npy"
    assert (file.read_bytes(), here.path != there.path) == (b"one", True)
    assert found.is_relative_to(there.path)
    if found.is_dir():
        assert sorted(path.name for path in found.rglob("*")) == ["a.npy", "about.json", "within"]


def test_names_are_those_of_everybody(machines):
    here = machines("here")
    there = machines("there")
    assert here.names() == []
    write(here, "00001")
    write(there, "00002")
    write(there, "spaces.mp4")
    assert sorted(here.names()) == ["00001", "00002", "spaces.mp4"]
    here.remove("00001")
    assert sorted(there.names()) == ["00002", "spaces.mp4"]


def test_only_the_first_sends_a_name(machines):
    here = machines("here")
    there = machines("there")
    write(here, "00001", b"one", exclusive=True)
    with pytest.raises(StorageError, match=r"^s3:\S+ expected a name that nobody has sent yet"):
        write(there, "00001", b"two", exclusive=True)
    assert not there.inside("00001").exists(), "what was refused is not left on the machine"
    assert (there.fetch("00001") / "within" / "a.npy").read_bytes() == b"one"


def test_a_name_that_was_sent_twice_because_the_reply_was_lost_is_ones_own(machines, monkeypatch):
    here = machines("here")
    put = type(here._storage).put_file

    def put_again(*args, **how):
        put(*args, **how)
        put(*args, **how)

    monkeypatch.setattr(type(here._storage), "put_file", put_again)
    write(here, "00001", b"one", exclusive=True)
    assert (here.fetch("00001") / "within" / "a.npy").read_bytes() == b"one"


def test_what_changes_is_fetched_again(machines):
    here = machines("here")
    there = machines("there")
    write(here, "a.mp4", b"one")
    there.fetch("a.mp4")
    write(here, "a.mp4", b"two")
    assert there.fetch("a.mp4").read_bytes() == b"one"
    assert there.fetch("a.mp4", again=True).read_bytes() == b"two"


def test_a_write_that_fails_sends_nothing(machines):
    here = machines("here")
    with pytest.raises(RuntimeError):
        fail_halfway(here)
    assert here.names() == []


def fail_halfway(folder):
    with folder.writing("00001") as draft:
        draft.mkdir()
        raise RuntimeError


def test_storage_that_cannot_be_reached_is_one_error(machines, monkeypatch):
    here = machines("here")
    here._storage.connect_timeout = 1
    monkeypatch.setattr(here._storage, "get_file", refuse)
    monkeypatch.setattr(here._storage, "put_file", refuse)
    monkeypatch.setattr(here._storage, "ls", refuse)
    for act in (lambda: here.fetch("00001"), lambda: write(here, "00001"), here.names):
        with pytest.raises(StorageError, match=AWAY):
            act()
    assert not here.inside("00001").exists()


AWAY = r"^s3:\S+ expected storage that can be reached, .* got TimeoutError: no reply\."


def refuse(*_, **__):
    raise TimeoutError("no reply")


def test_a_bucket_that_is_missing_takes_nothing(machines, bucket):
    folder = SyncedFolder("s3://no-such-bucket/rewards")
    assert folder.names() == []
    with pytest.raises(StorageError, match="bucket does not exist"):
        write(folder, "00001")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/rewards",
        "s3://me:secret@bucket/rewards",
        "s3://bucket/../other",
        "s3://bucket/a?versionId=3",
        "simplecache::s3://bucket/a",
        "s3://",
        "file://host/folder",
        "memory://a",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(ConfigError, match="s3://bucket/folder"):
        SyncedFolder(url)


@pytest.mark.parametrize("name", ["../other/00001", "/etc/passwd", "a/../../b", "a\0b"])
def test_no_name_leads_out_of_the_folder(machines, tmp_path, name):
    for folder in (machines("here"), SyncedFolder(tmp_path)):
        with pytest.raises(StorageError, match="inside the folder"):
            folder.fetch(name)
        with pytest.raises(StorageError, match="inside the folder"), folder.writing(name):
            pass


def test_a_folder_by_its_file_url_is_that_folder(tmp_path):
    folder = SyncedFolder(f"file://{tmp_path}/my%20rewards")
    write(folder, "00001")
    assert (folder.url, [path.name for path in (tmp_path / "my rewards").iterdir()]) == (
        None,
        ["00001"],
    )
    assert folder.names() == ["00001"]
    assert folder.fetch("00001") == folder.inside("00001")


def compressed(archive):
    archive.writestr("a.npy", b"\0" * 10_000, zipfile.ZIP_DEFLATED)


def outside(archive):
    archive.writestr("../../a.npy", b"a")


def doubled(archive):
    archive.writestr("a.npy", b"a")
    archive.filelist.append(archive.filelist[0])


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("fill", [compressed, outside, doubled, None])
def test_archives_of_others_are_refused(machines, tmp_path, fill):
    packed = tmp_path / "packed.zip"
    if fill is None:
        packed.write_bytes(b"none")
    else:
        with zipfile.ZipFile(packed, "w") as archive:
            fill(archive)
    here = machines("here")
    here._storage.put_file(str(packed), f"{here._root}/00001.zip")
    with pytest.raises(StorageError, match="an archive as preferl sends it"):
        here.fetch("00001")
    assert not here.inside("00001").exists()
    assert not (here.path.parent / "a.npy").exists()
