"""A method of your own: check that it keeps the contract, then train it with everything that
resumes.

    python examples/own_method.py

Center loss (Wen et al., ECCV 2016): every class has a center that its features are pulled to. The
centers learn with the network and are left behind when the classifier is deployed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome, Stage
from longtail.data.loader import TrainLoader
from longtail.data.open import open_data
from longtail.data.views import CropFlip
from longtail.engine.optim import sgd
from longtail.engine.predicting import predictor
from longtail.engine.run import Run
from longtail.losses import LogitAdjusted
from longtail.nn import Classifier, Linear, Network, build
from longtail.recipes.builders import validation
from longtail.testing import check_method


class CenterLoss(Method[Labelled]):
    """Balanced softmax, and features that are pulled to the center of their class."""

    def __init__(self, network: Network, counts: Tensor, *, factor: float = 0.01) -> None:
        super().__init__()
        self.network, self.head = network, Linear(network.dim, len(counts))
        self.loss, self.factor = LogitAdjusted(counts), factor
        self.centers = nn.Parameter(torch.randn(len(counts), network.dim))

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """Two terms: "class" and "center"."""
        features, target = self.network(batch["image"]), batch["target"]
        distance = (features - self.centers[target]).square().sum(1).mean()
        return Outcome(
            {"class": self.loss(self.head(features), target), "center": self.factor * distance}
        )

    def predict(self, image: Tensor) -> Tensor:
        """Logits (N, C)."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The network and its head; the centers are not needed."""
        return Classifier(self.network, self.head)


def check() -> None:
    """Ask the questions that longtail asks of its own methods; takes a second."""
    batch = {
        "image": torch.rand(6, 3, 8, 8),
        "target": torch.tensor([0, 0, 0, 1, 1, 2]),
        "position": torch.arange(6),
    }
    network = {"name": "fast_cnn", "size": 8, "width": 8}
    check_method(lambda: CenterLoss(build(network), torch.tensor([3, 2, 1])), batch)


def train(folder: Path, *, epochs: int = 20) -> float:
    """Train on long-tailed digits; the same call again resumes.

    Returns balanced accuracy on the validation images.
    """
    data, run = open_data("digits-lt"), Run(folder)
    method = CenterLoss(build({"name": "fast_cnn", "size": data.size}), data.counts)
    view = CropFlip(data.size, pad=1, flip=False)
    run.fit(
        Stage(
            name="train",
            method=method,
            data=TrainLoader(data.train, view=view, batch=64, seed=run.view_seed),
            epochs=epochs,
            optimizer=sgd(lr=0.05),
        )
    )
    (evaluate,) = validation(data, data.size).values()
    return evaluate(predictor(method, run.machine))["balanced"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    check()
    print("the method keeps the contract")
    with tempfile.TemporaryDirectory() as place:
        print(f"balanced accuracy: {train(Path(place), epochs=arguments.epochs):.1%}")
