"""Seeding: every random number of a step is a function of (seed, stage, step, rank)."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch

MPS = torch.backends.mps.is_available()


def seed_all(*parts: object) -> None:
    """Seed torch, numpy and `random` from anything with a stable repr.

    >>> seed_all(0, "finetune", 17); a = torch.rand(()).item()
    >>> seed_all(0, "finetune", 17); a == torch.rand(()).item()
    True
    """
    seed = int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")
    # Not torch.manual_seed, which formats a stack trace for missing devices: a millisecond at every
    # step.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if MPS:
        torch.mps.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - libraries draw from the legacy stream
    random.seed(seed)
