"""A trained network with its classes and preprocessing, for use from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.core import Predict
from longtail.data.readers.features import read_rows
from longtail.deprecated import renamed_attribute
from longtail.engine.machine import Machine
from longtail.engine.predicting import predictor
from longtail.errors import LongtailError
from longtail.metrics.conformal import Thresholds
from longtail.nn.networks import takes_vectors, vector_size
from longtail.records.row import Row
from longtail.runs.images import ImageLike, ImagesLike, Preprocessing
from longtail.runs.inference import feature_outputs, network_outputs, predict_images, read_ahead
from longtail.runs.predictions import Predictions, to_predictions


@dataclass(frozen=True)
class FilePredictions:
    """Predictions for a batch of files, and why others cannot be read."""

    paths: tuple[Path, ...]
    predictions: Predictions | None  # one row for each path; None where there is no path
    bad: tuple[tuple[Path, str], ...]

    answers = renamed_attribute("answers", "predictions")


@dataclass(frozen=True)
class Loaded:
    """A trained network for inference; `longtail.load` gives it.

    `predict`, `predict_proba` and `score` are as in scikit-learn, with images in the place of a
    table. Images are paths, PIL images of any mode, uint8 arrays (H, W, 3) or (N, H, W, 3) - one,
    or several in a list - or floats (N, 3, size, size) in [0, 1]. A run that was trained on
    features takes these, too, as floats (N, D).
    """

    folder: Path
    network: nn.Module
    classes: tuple[str, ...]
    size: int
    row: Row
    preprocessing: Preprocessing
    thresholds: Thresholds | None  # of prediction sets, where the run was calibrated for them
    machine: Machine

    fit = renamed_attribute("fit", "preprocessing")

    def preprocess(self, image: ImageLike) -> Tensor:
        """The pixels that the network takes for an image: uint8 (3, size, size), before / 255."""
        return self.preprocessing(image)

    def predict(self, images: ImagesLike, *, abstain_below: float | None = None) -> Predictions:
        """Classify images, without test-time averaging.

        A prediction also abstains where its probability is below `abstain_below`.
        """
        return self._predictions(self.logits(images), abstain_below)

    def predict_proba(self, images: ImagesLike) -> NDArray[np.float32]:
        """The probability of each class for each image, (N, C); the columns are `classes`."""
        return np.asarray(self.logits(images).softmax(dim=1).numpy())

    def logits(self, images: ImagesLike) -> Tensor:
        """The logit of each class for each image, (N, C), float32 on the CPU."""
        predict = predictor(network_outputs(self.network), self.machine)
        return self._outputs(predict, images)["logits"]

    def features(self, images: ImagesLike) -> NDArray[np.float32]:
        """The features of each image that the classifier's head takes, (N, dim)."""
        predict = predictor(feature_outputs(self.network), self.machine)
        return np.asarray(self._outputs(predict, images)["features"].numpy())

    def score(
        self, images: ImagesLike, targets: Sequence[str] | Sequence[int] | NDArray[Any] | Tensor
    ) -> float:
        """Balanced accuracy: recall, averaged over the classes of `targets` (names or numbers).

        Not the plain accuracy of scikit-learn's classifiers, in which rare classes hardly count; it
        is `balanced_accuracy_score` there.
        """
        target = torch.tensor(self._class_numbers(targets))
        logits = self.logits(images)
        if len(target) != len(logits):
            raise LongtailError(
                f"expected a target for each of {len(logits)} images, got {len(target)}"
            )
        right = (logits.argmax(dim=1) == target).double()
        return float(
            torch.stack([right[target == label].mean() for label in target.unique()]).mean()
        )

    def predict_files(
        self, paths: Sequence[Path], *, abstain_below: float | None = None
    ) -> Iterator[FilePredictions]:
        """Classify files in batches, in their order; those that cannot be read are in `bad`."""
        if takes_vectors(self.network):
            raise self._no_images()
        predict = predictor(network_outputs(self.network), self.machine)
        for batch in read_ahead(paths, self.preprocessing, machine=self.machine):
            predictions = None
            if batch.images:
                logits = predict(batch.pixels())["logits"]
                predictions = self._predictions(logits, abstain_below)
            # The cause is the decoder's error: the message around it repeats the path.
            bad = tuple((path, str(error.__cause__ or error)) for path, error in batch.bad)
            yield FilePredictions(batch.images, predictions, bad)

    def predict_features(
        self, path: Path, *, abstain_below: float | None = None
    ) -> FilePredictions:
        """Classify the rows of an .npz of features, for a run that was trained on such.

        The paths of the result are the ids of the rows, or their numbers.
        """
        width = vector_size(self.network)
        if width is None:
            raise LongtailError(f"this run takes images, and {path} has features: pass images")
        rows, ids = read_rows(path)
        if rows.shape[1] != width:
            raise LongtailError(
                f"{path}: this run takes features (N, {width}), got (N, {rows.shape[1]})"
            )
        predictions = self.predict(torch.from_numpy(rows), abstain_below=abstain_below)
        return FilePredictions(tuple(map(Path, ids)), predictions, ())

    def _outputs(self, predict: Predict, images: ImagesLike) -> Mapping[str, Tensor]:
        width = vector_size(self.network)
        if width is not None and isinstance(images, Tensor) and images.shape[1:] == (width,):
            return predict(images.float())
        if takes_vectors(self.network):
            raise self._no_images()
        return predict_images(predict, images, self.preprocessing, machine=self.machine)

    def _no_images(self) -> LongtailError:
        return LongtailError(
            "this run was trained on feature vectors without their backbone and cannot take images:"
            f" pass a float tensor (N, {self.size}) of features to `predict` in Python, or train on"
            " a file of `longtail embed`, which has the backbone"
        )

    def _predictions(self, logits: Tensor, abstain_below: float | None) -> Predictions:
        return to_predictions(
            logits, classes=self.classes, thresholds=self.thresholds, abstain_below=abstain_below
        )

    def _class_numbers(
        self, targets: Sequence[str] | Sequence[int] | NDArray[Any] | Tensor
    ) -> list[int]:
        given: list[Any] = (
            targets.tolist() if isinstance(targets, Tensor | np.ndarray) else list(targets)
        )
        numbers = {name: number for number, name in enumerate(self.classes)}
        unknown = [
            target
            for target in given
            if target not in (numbers if isinstance(target, str) else range(len(self.classes)))
        ]
        if unknown:
            known = f"{', '.join(self.classes[:5])}{', ...' if len(self.classes) > 5 else ''}"
            raise LongtailError(
                f"expected classes of the run ({known}) or their numbers from 0 on, "
                f"got {unknown[0]!r}"
            )
        return [numbers[target] if isinstance(target, str) else int(target) for target in given]
