"""The names of the built-in datasets; importing this does not import torch."""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "digits-lt": "a long-tailed subset of 1,797 real 8x8 digits (part of the package)",
    "shapes-lt": "a long-tailed set of ten procedural shapes (32x32, made in memory)",
    "shapes-domains": "six shapes in four styles, for domain generalisation (made in memory)",
    "shapes-pairs": "pairs of a texture and a shape, some of them unseen (made in memory)",
    "shapes-attributes": "classes described by attributes, some of them unseen (made in memory)",
    "cifar10-lt": "the conventional long-tailed subset of CIFAR-10 (32x32, 10 classes)",
    "cifar100-lt": "the conventional long-tailed subset of CIFAR-100 (32x32, 100 classes)",
    "cifar10": "all of CIFAR-10, balanced",
    "cifar100": "all of CIFAR-100, balanced",
    "imagenet-lt": (
        "ImageNet-LT from list files and a folder of images (115,846 images, 1,000 classes)"
    ),
    "imagenet-bal": "116 images of each class of ImageNet: the balanced counterpart of imagenet-lt",
    "imagenet-bal-160": "160 images of each class of ImageNet, as LiVT's released code takes",
    "places-lt": "Places-LT from list files and a folder of images (62,500 images, 365 classes)",
    "inaturalist18": (
        "iNaturalist 2018 from list files and a folder of images (437,513 images, 8,142 classes)"
    ),
    "mit-states": "MIT-States, pairs of a state and an object (folder of the released layout)",
    "ut-zappos": "UT-Zappos, pairs of a material and a shoe (folder of the released layout)",
    "c-gqa": "C-GQA, pairs of a state and an object (folder of the released layout)",
}
