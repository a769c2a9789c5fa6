"""Policies on Hugging Face's hub: a folder as `save` writes it, with a card that explains it."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from preferl._optional import require
from preferl.errors import CheckpointError, StorageError
from preferl.files import write_text
from preferl.offline.trainer_options import Pushing

if TYPE_CHECKING:
    from preferl.offline.decision_policy import DecisionTransformerPolicy

PREFIX: Final = "hub:"
"""Before the name of a repository on the hub, as of data sets there."""

WANTED: Final = ("*.json", "*.safetensors", "pytorch_model.bin")
"""What is fetched; cards, videos and the optimisers of others are not."""


def push_policy(
    policy: "DecisionTransformerPolicy", where: Pushing, card: Callable[[str], str], message: str
) -> str:
    """Push a policy's whole folder and its card in one commit; the repository is made if absent.

    Args:
        policy: what is pushed.
        where: it goes.
        card: made for the full name of the repository.
        message: of the commit.

    Returns:
        The address of the repository.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        StorageError: the hub cannot be reached, or refuses.
    """
    hub = require("huggingface_hub", extra="hub")
    api: Any = hub.HfApi(token=where.token, library_name="preferl")
    try:
        made = api.create_repo(where.name, private=where.private, exist_ok=True)
        if where.revision is not None:
            api.create_branch(made.repo_id, branch=where.revision, exist_ok=True)
        with TemporaryDirectory() as holder:
            folder = Path(holder) / "policy"
            policy.save(folder)
            write_text(folder / "README.md", card(made.repo_id))
            operations = [
                hub.CommitOperationAdd(file.name, str(file)) for file in sorted(folder.iterdir())
            ]
            api.create_commit(
                made.repo_id, operations, commit_message=message, revision=where.revision
            )
    except Exception as error:  # a network and a hub have errors of every kind
        raise StorageError.mismatch(
            f"{where.name} on the hub",
            expected="a repository that can be written to",
            got=f"{type(error).__name__}: {error}",
            fix="Sign in with `hf auth login`, or pass a token that may write there.",
        ) from error
    return str(made)


def local_folder(source: Path | str) -> Path:
    """The folder itself, or what was fetched of `hub:OWNER/NAME` or `hub:OWNER/NAME@REVISION`.

    Raises:
        CheckpointError: no such repository, or a hub that cannot be reached.
        MissingExtraError: huggingface_hub is not installed.
    """
    name = str(source)
    if not name.startswith(PREFIX):
        return Path(source)
    hub = require("huggingface_hub", extra="hub")
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    try:
        return Path(
            hub.snapshot_download(repository, revision=revision or None, allow_patterns=WANTED)
        )
    except Exception as error:  # as above
        raise CheckpointError.mismatch(
            f"policy {name}",
            expected="a repository of the hub, hub:OWNER/NAME",
            got=f"{type(error).__name__}: {error}",
            fix="Check the name, the network, and `hf auth login` if it is private.",
        ) from error
