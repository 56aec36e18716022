"""The folder `model/` of a run: weights, the spec that rebuilds their network, and a card for people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_model
from torch import Tensor, nn

from longtail.data.dataset import Dataset
from longtail.data.decoding import decode
from longtail.data.views import Plain
from longtail.engine.machine import choose
from longtail.metrics.row import Row
from longtail.nn.files import filled
from longtail.nn.networks import build
from longtail.report.rows import read_row
from longtail.runs.files import FORMAT, read_json, write_json, write_text

BATCH = 256
"""Images asked about at once; no answer depends on it."""


@dataclass(frozen=True)
class Answers:
    """What a network says about images, row by row."""

    probabilities: Tensor  # (N, C)
    labels: tuple[str, ...]  # the most probable class of each


@dataclass(frozen=True)
class Loaded:
    """A trained network that can be asked."""

    folder: Path
    network: nn.Module
    classes: tuple[str, ...]
    size: int
    row: Row

    def predict(self, images: Tensor | Image.Image | str | Path | Sequence[Image.Image | str | Path]) -> Answers:
        """Classify images: PIL images, paths, or floats (N, 3, H, W) in [0, 1] of the network's size."""
        batch = images if isinstance(images, Tensor) else self._pixels(images)
        batch = batch[None] if batch.ndim == 3 else batch
        if (
            batch.ndim != 4
            or not len(batch)
            or batch.shape[1] != 3
            or not batch.is_floating_point()
            or not 0 <= batch.min() <= batch.max() <= 1
        ):
            raise ValueError(
                f"expected images as floats (N, 3, H, W) in [0, 1], got {batch.dtype} {tuple(batch.shape)}"
                + (f" in [{batch.min():g}, {batch.max():g}]" if batch.numel() else "")
                + ": divide bytes by 255, and leave normalisation to the network"
            )
        device = next(self.network.parameters()).device
        with torch.no_grad():
            parts = [self.network(batch[first : first + BATCH].to(device)).float().cpu() for first in range(0, len(batch), BATCH)]
        probabilities = torch.cat(parts).softmax(dim=1)
        return Answers(probabilities, tuple(self.classes[index] for index in probabilities.argmax(dim=1).tolist()))

    def _pixels(self, images: Image.Image | str | Path | Sequence[Image.Image | str | Path]) -> Tensor:
        several = [images] if isinstance(images, Image.Image | str | Path) else list(images)
        if not several:
            raise ValueError("expected at least one image, got none")
        opened = [image if isinstance(image, Image.Image) else _opened(Path(image)) for image in several]
        return torch.stack([Plain(self.size)(image.convert("RGB")) for image in opened]).float() / 255


def _opened(path: Path) -> Image.Image:
    if not path.is_file():
        raise ValueError(f"expected an image, got no file at {path}")
    try:
        return decode(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"expected an image, got something else or a part of it at {path} ({error})") from error


def load(run: str | Path, *, device: str = "auto") -> Loaded:
    """Load a finished run's network. It is built from its spec and filled with its weights; nothing in the files is executed."""
    folder = Path(run)
    row = read_row(folder)
    spec = read_json(folder / "model" / "spec.json")
    network = filled(build(spec["network"]), folder / "model" / "model.safetensors")
    network.eval().requires_grad_(False).to(choose(device=device, precision="fp32").device)
    return Loaded(folder, network, tuple(spec["classes"]), spec["size"], row)


def spec_of(network: nn.Module) -> Mapping[str, Any]:
    """The spec that a deployed network was built from."""
    spec = getattr(network, "spec", None)
    if not isinstance(spec, Mapping):
        raise ValueError(f"expected `deploy()` to give a network with the spec it was built from, got a {type(network).__name__} without")
    return spec


def size_of(spec: Mapping[str, Any]) -> int:
    """The side of the images that a network was built for; a classifier's is its backbone's.

    >>> size_of({"name": "classifier", "network": {"name": "resnet32", "size": 32}, "head": {"name": "linear"}})
    32
    """
    return int(spec["size"]) if "size" in spec else size_of(spec["network"])


def write_model(folder: Path, network: nn.Module, dataset: Dataset, row: Row) -> None:
    """Write the weights, the spec and the card."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "model.safetensors.part"
    save_model(network, str(part))
    os.replace(part, folder / "model.safetensors")
    write_json(folder / "spec.json", {"format": FORMAT, "network": spec_of(network), "classes": list(dataset.classes), "size": row["size"]})
    write_text(folder / "README.md", _card(dataset, row))


def _card(dataset: Dataset, row: Row) -> str:
    test, counts = row["test"], dataset.counts
    if test is None:
        tested = "It was never tested: the data has no test images."
    else:
        groups = ", ".join(f"{name} {'-' if value is None else f'{value:.1%}'}" for name, value in test["groups"].items())
        tested = (
            f"Test ({test['images']:,} images; test-time averaging: {row['tta']}): top-1 {test['top1']:.1%}, "
            f"balanced {test['balanced']:.1%}, {groups} ({test['group_rule']}); calibration error {test['ece']:.3f}."
        )
    marks = f"\nNote: {'; '.join(dataset.marks)}.\n" if dataset.marks else ""
    return f"""# {row["recipe"]} on {dataset.name}

An image classifier for {len(dataset.classes)} classes, trained with longtail {row["versions"]["longtail"]} on {len(dataset.train):,} images
({int(counts.min()):,} to {int(counts.max()):,} per class).

```python
import longtail

longtail.load("FOLDER OF THE RUN").predict("image.png").labels
```

Input: RGB in [0, 1], {row["size"]} x {row["size"]} pixels; the network normalises.
{row["parameters"]:,} parameters; weights: {row["selection"]}.

{tested}
{marks}"""
