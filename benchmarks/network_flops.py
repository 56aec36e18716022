"""Write src/longtail/recipes/data/flops.toml: the work of one image in each published network.

    python benchmarks/network_flops.py

Counted by torch on the meta device, where nothing is allocated: multiplications and additions of
one forward pass, for every network and size of a published row on long-tailed data.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from longtail.nn import build
from longtail.nn.mae import MaskedAutoencoder
from longtail.recipes.costs import FILE, Part, parts_of
from longtail.recipes.published import published

HEAD = """\
# Billions of multiplications and additions of one image through a network, forward; of a masked
# autoencoder, of its encoder and decoder together. benchmarks/network_flops.py writes this file.

[gigaflop]
"""


def gigaflop(part: Part) -> float:
    """The work of one image, forward, in billions of operations."""
    with torch.device("meta"):
        network = build(
            {"name": part.network, "size": part.size, **dict(part.keywords)}, trust=True
        ).eval()
        if part.decoder is not None:
            width, depth, heads = part.decoder
            network = MaskedAutoencoder(network, width=width, depth=depth, heads=heads)  # type: ignore[assignment]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.zeros(1, 3, part.size, part.size))
    return float(counter.get_total_flops()) / 1e9


def text() -> str:
    """The content of the file."""
    parts = {part.key: part for row in published().values() for part in parts_of(row)}
    lines = [f'"{key}" = {gigaflop(parts[key]):.4g}' for key in sorted(parts)]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(FILE).write_text(text(), encoding="utf-8")
