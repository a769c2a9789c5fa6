"""Pretrained vision models with fixed weights, and their features of a robot's frames.

Oquab et al. 2024, "DINOv2: Learning Robust Visual Features without Supervision"; Zhai et al. 2023,
"Sigmoid Loss for Language Image Pre-Training". Rewards from few answers are fitted to such features
instead of pixels.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import torch

from preferl._optional import require
from preferl.data.arrays import load_npy
from preferl.data.columns import reading_foreign, require_finite
from preferl.data.episodes import Episodes
from preferl.data.on_disk import OnDisk
from preferl.data.sources.hub import PREFIX, hub_folder
from preferl.data.sources.lerobot import LeRobotFolder
from preferl.errors import DataError, UnsafePickleError
from preferl.files import writing
from preferl.models.folder import bounded_network
from preferl.reading import inside
from preferl.remote import cache_folder
from preferl.shapes import Array, FloatArray

SETTINGS: Final = ("config.json", "preprocessor_config.json")
"""Files of an encoder beside its weights."""

WEIGHTS: Final = "*.safetensors"
FRAMES_AT_ONCE: Final = 32
"""Frames per forward pass: enough for a GPU. On a CPU, more would not be faster."""

FRAMES_OF_FILE: Final = 256
"""Frames per file of features in the cache. A computation that is killed loses one file at most."""

MOST_PIXELS: Final = 1024
"""Largest side of the pictures that an encoder sees; published encoders see up to 518 pixels."""

MOST_LONG: Final = 16
"""Largest ratio of a frame's sides; the shorter side is scaled to what the encoder sees."""

OnFrames = Callable[[str, int, int], None]
"""Called with a camera, how many of its frames have features, and how many frames it has."""


@final
class FrozenEncoder:
    """A vision model of `transformers`, such as DINOv2 or SigLIP, that maps pictures to vectors.

    It is not trained. Its weights are read only if a picture has to be encoded, not if all features
    are on disk. The vector is the model's `pooler_output`. For a model without trained weights of a
    pooler, such as DINO, it is the mean over the tokens of all patches.

    Args:
        content_id: digest of the encoder's files.
        folder: folder with its weights; None if features are only read from disk.
        device: device on which it computes.

    Attributes:
        content_id: the argument.
    """

    def __init__(
        self, content_id: str, folder: Path | None = None, *, device: str | torch.device = "cpu"
    ) -> None:
        self.content_id = content_id
        self._folder = folder
        self._device = torch.device(device)

    @classmethod
    def of(cls, source: str | Path, *, device: str | torch.device = "cpu") -> Self:
        """Return the encoder in a folder, or of `hub:OWNER/NAME`, which is downloaded if needed.

        The folder holds `config.json`, `preprocessor_config.json` and weights as safetensors, as
        `save_pretrained` writes them. No code in it is run.

        Raises:
            DataError: files are missing, or there is no such repository.
            MissingExtraError: huggingface_hub, which the hub needs, is not installed.
            UnsafePickleError: all weights are pickles.
        """
        name = str(source)
        folder = Path(source)
        if name.startswith(PREFIX):
            wanted = [*SETTINGS, WEIGHTS, f"{WEIGHTS}.index.json"]
            folder = hub_folder(name.removeprefix(PREFIX), wanted, kind="model")
        missing = [file for file in SETTINGS if not (folder / file).is_file()]
        if missing:
            raise DataError(
                f"{name}: expected a vision model with {' and '.join(SETTINGS)}, got no "
                f"{' and no '.join(missing)}. Save its image processor beside the model."
            )
        weights = sorted(folder.glob(WEIGHTS))
        if not weights:
            others = ", ".join(file.name for file in folder.glob("*.bin")) or "none"
            raise UnsafePickleError(
                f"{name}: expected weights as safetensors, got {others}. Pickles may run code: "
                "save the model with `save_pretrained` of a newer transformers."
            )
        digest = hashlib.sha256()
        for file in (*(folder / name for name in SETTINGS), *weights):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return cls(digest.hexdigest()[:32], folder, device=device)

    def __call__(self, pictures: Array | OnDisk) -> FloatArray:
        """Encode pictures `[N, height, width, 3]`, bytes, as features `[N, F]`, in batches.

        Raises:
            DataError: the folder is not a vision model, weights are missing, or pictures are
                smaller than a patch.
            MissingExtraError: transformers is not installed.
        """
        parts = [
            self._forward(pictures[first : first + FRAMES_AT_ONCE])
            for first in range(0, len(pictures), FRAMES_AT_ONCE)
        ]
        return np.concatenate(parts)

    @torch.inference_mode()
    def _forward(self, pictures: Array) -> FloatArray:
        processor, model, pooled = self._loaded
        patch = int(np.max(model.config.to_dict().get("patch_size", 1)))
        short, long = sorted(pictures.shape[1:3])
        if short < patch or long > MOST_LONG * short:
            raise DataError(
                f"pictures for {self._folder}: expected sides of at least {patch} pixels, a patch "
                f"of the encoder, and a longer side of at most {MOST_LONG} times the shorter, got "
                f"{short} and {long}"
            )
        with self._reading():
            pixels = processor(images=list(pictures), return_tensors="pt")["pixel_values"]
            output = model(pixel_values=pixels.to(self._device))
            if pooled and "pooler_output" in output:
                features = output.pooler_output.flatten(1)
            else:
                patches = (pixels.shape[-2] // patch) * (pixels.shape[-1] // patch)
                # other tokens come before them
                features = output.last_hidden_state[:, -patches:].mean(1)
        return np.asarray(features.cpu().numpy())

    @cached_property
    def _loaded(self) -> tuple[Any, Any, bool]:
        """Return the preprocessing, the network, and whether its pooler has trained weights."""
        if self._folder is None:
            raise DataError(
                f"features of the encoder {self.content_id}: expected those of all frames on disk, "
                "but some have to be computed. Name the encoder's folder."
            )
        transformers = require("transformers", extra="vision")
        size = sum(file.stat().st_size for file in self._folder.glob(WEIGHTS))
        local = {"local_files_only": True, "trust_remote_code": False}
        with self._reading(), bounded_network(size):  # a number takes at least a byte
            processor = transformers.AutoImageProcessor.from_pretrained(self._folder, **local)
            sides = [*dict(processor.size).values(), *dict(processor.crop_size or {}).values()]
            if max(sides) > MOST_PIXELS:
                raise ValueError(f"pictures of {sides} pixels")
            model, report = transformers.AutoModel.from_pretrained(
                self._folder,
                **local,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
            if "vision_config" in model.config.to_dict():  # the model also has a part for text
                model = model.vision_model
            missing = [*report["missing_keys"], *map(str, report["mismatched_keys"])]
            if not all("pooler" in name for name in missing):
                raise ValueError(f"no weights for {sorted(missing)[:3]}")
        return processor, model.eval().to(self._device), not missing

    def _reading(self) -> Any:
        return reading_foreign(
            self._folder, "a whole vision model of transformers", "Name another, or fetch it again."
        )


def frame_features(
    recording: LeRobotFolder,
    camera: str,
    encoder: FrozenEncoder,
    *,
    on_frames: OnFrames | None = None,
) -> OnDisk:
    """Return the features `[T, F]` of all frames of a camera. They are computed once and kept.

    They are in `~/.cache/preferl/features` (or `PREFERL_CACHE`), under the content ids of the data
    set and of the encoder, as files that are mapped into memory. A computation that was killed
    continues after its last file.

    Args:
        recording: the data set.
        camera: name of the camera.
        encoder: encodes frames that have no features yet.
        on_frames: called after each file that is computed.

    Raises:
        DataError: there is no such camera, frames or features are damaged, or see `FrozenEncoder`.
        StorageError: the cache cannot be written to.
    """
    pictures = recording.pictures(camera)
    cache = cache_folder() / "features" / recording.content_id / encoder.content_id
    with reading_foreign(recording.path, "cameras whose names are no paths"):
        place = inside(cache, camera)
    parts = []
    for first in range(0, len(pictures), FRAMES_OF_FILE):
        rows = slice(first, min(first + FRAMES_OF_FILE, len(pictures)))
        file = place / f"{first:09d}.npy"
        if not file.exists():
            computed = encoder(pictures.select(rows))
            require_finite(f"features of {camera}", computed)
            with writing(file) as draft:
                np.save(draft, computed)
            if on_frames is not None:
                on_frames(camera, rows.stop, len(pictures))
        with reading_foreign(file, "features of frames", "Delete the file to compute it again."):
            part = load_npy(file, memory_map=True)
            if part.ndim != 2 or part.dtype != np.float32 or len(part) != rows.stop - first:
                raise ValueError(f"{part.dtype} of shape {part.shape}")
        parts.append(part)
    return OnDisk.of(parts)


def encoded_episodes(
    recording: LeRobotFolder, encoder: FrozenEncoder, *, on_frames: OnFrames | None = None
) -> Episodes:
    """Read the episodes of a data set, with features of a frozen encoder instead of pictures.

    One camera alone becomes `[T, F]`. Several, or a camera beside numbers, stay a dictionary, whose
    vectors reward models concatenate.

    Args:
        recording: the data set; all cameras are observed unless its `observed` names features.
        encoder: encoder of the pictures.
        on_frames: is called as features are computed.

    Raises:
        DataError: there is no camera among the features, or see `frame_features`.
    """
    names = recording.observed or tuple(recording.cameras)
    if not set(names) & set(recording.cameras):
        raise DataError(
            f"{recording.path}: expected a camera for the encoder, got {', '.join(names) or 'none'}"
            f". Cameras: {', '.join(recording.cameras)}"
        )
    features = partial(frame_features, recording, encoder=encoder, on_frames=on_frames)
    return recording.episodes(names, pictures=features)
