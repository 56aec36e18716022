"""A longtail loss in a timm training loop.

    python examples/loss_in_timm.py

Every loss is a module `(logits, target) -> scalar` that takes class indices, or the soft targets of
mixup and CutMix, so it goes where `timm.loss.SoftTargetCrossEntropy` stands. The same two lines
work elsewhere: in Lightning, make the loss an attribute of the module and call it in
`training_step`; in Hugging Face's Trainer, pass `compute_loss_func=lambda outputs, labels, **_:
loss(outputs.logits, labels)`.
"""

from __future__ import annotations

import argparse

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.utils.data import DataLoader, TensorDataset

from longtail.losses import BalancedBCE


def imbalanced_images(counts: list[int], *, seed: int = 0) -> TensorDataset:
    """Noise with a bright square whose place is the class: stands in for your dataset."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    image = 0.4 * torch.rand(len(target), 3, 32, 32, generator=generator)
    for row, label in enumerate(target.tolist()):
        top, left = divmod(label, 4)
        image[row, :, 8 * top : 8 * top + 8, 8 * left : 8 * left + 8] += 0.5
    return TensorDataset(image, target)


def train(epochs: int = 8, *, counts: list[int] | None = None, seed: int = 0) -> float:
    """Train a timm model on imbalanced images; returns its accuracy on balanced ones."""
    torch.manual_seed(seed)
    counts = counts or [128, 64, 32, 16]
    model = timm.create_model("test_resnet", pretrained=False, num_classes=len(counts))
    loss = BalancedBCE(torch.tensor(counts))  # instead of timm.loss.BinaryCrossEntropy()
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=0.0, num_classes=len(counts))
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=epochs)
    loader = DataLoader(
        imbalanced_images(counts, seed=seed), batch_size=32, shuffle=True, drop_last=True
    )

    for epoch in range(epochs):
        model.train()
        for image, target in loader:
            image, target = mixup(image, target)  # soft targets (N, C)
            optimizer.zero_grad()
            loss(model(image), target).backward()
            optimizer.step()
        schedule.step(epoch + 1)

    model.eval()
    test_image, test_target = imbalanced_images([16] * len(counts), seed=seed + 1).tensors
    with torch.no_grad():
        return float((model(test_image).argmax(1) == test_target).float().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=8)
    print(f"accuracy on balanced test images: {train(parser.parse_args().epochs):.1%}")
