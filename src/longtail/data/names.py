"""The names of the built-in datasets; importing this does not import torch."""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "digits-lt": "1,797 real 8x8 digits, cut long-tailed (comes with the package)",
    "cifar10-lt": "CIFAR-10 cut long-tailed by the field's convention (32x32, 10 classes)",
    "cifar100-lt": "CIFAR-100 cut long-tailed by the field's convention (32x32, 100 classes)",
    "cifar10": "CIFAR-10 as it is, balanced",
    "cifar100": "CIFAR-100 as it is, balanced",
    "imagenet-lt": (
        "ImageNet-LT from its list files and a root of images (115,846 images, 1,000 classes)"
    ),
    "places-lt": "Places-LT from its list files and a root of images (62,500 images, 365 classes)",
    "inaturalist18": (
        "iNaturalist 2018 from its list files and a root of images (437,513 images, 8,142 classes)"
    ),
}
