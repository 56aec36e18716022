"""BatchFormer in a plain PyTorch loop: attention across the images of a batch, while training only.

    python examples/batchformer_loop.py

Three lines differ from the loop you have: the module, the call that doubles the rows, and a smaller
learning rate for its parameters. In eval mode BatchFormer passes features through unchanged, so the
network is used as if it had never been there (Hou et al., CVPR 2022, Algorithm 1).
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from longtail.data.open import open_data
from longtail.losses import LogitAdjusted
from longtail.metrics.accuracy import balanced, recall
from longtail.nn import BatchFormer


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Long-tailed digits that come with longtail: training images and labels, test images and
    labels.
    """
    data = open_data("digits-lt", protocol="paper")
    images = [
        torch.stack(
            [torch.as_tensor(bytearray(split.inputs.image(i).tobytes())) for i in range(len(split))]
        )
        for split in (data.train, data.test)
    ]
    return images[0] / 255, data.train.target, images[1] / 255, data.test.target


def train(epochs: int = 20, *, batchformer: bool = True, seed: int = 0) -> float:
    """Train a small network and return its balanced accuracy on the test images."""
    torch.manual_seed(seed)
    image, label, test_image, test_label = digits()
    network = nn.Sequential(
        nn.Linear(image.shape[1], 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
    )
    head = nn.Linear(64, 10)
    loss = LogitAdjusted(label.bincount())  # balanced softmax: knows how many images a class has
    neck = BatchFormer(64)  # 1. the module

    optimizer = torch.optim.SGD(
        [
            {"params": [*network.parameters(), *head.parameters()], "lr": 0.1},
            {"params": neck.parameters(), "lr": 0.01},  # 2. a tenth of the learning rate
        ],
        momentum=0.9,
        weight_decay=5e-4,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(label)).split(64):
            features, target = network(image[rows]), label[rows]
            if batchformer:
                # 3. plain rows and attended rows, labels twice
                features, target = neck(features, target)
            optimizer.zero_grad()
            loss(head(features), target).backward()
            optimizer.step()
        schedule.step()

    network.eval()
    with torch.no_grad():
        logits = head(network(test_image))
    return balanced(recall(logits.numpy(), test_label.numpy(), 10))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    print(f"without BatchFormer: {train(epochs, batchformer=False):.1%} balanced accuracy")
    print(f"with BatchFormer:    {train(epochs):.1%}")
