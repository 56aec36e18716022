"""What masked pretraining costs, and Balanced BCE: against all tokens, against lightly, against the
machine, and as both grow.

    python benchmarks/livt_speed.py [--threads 2] [--only QUESTION]

Run it alone on the machine.

Contestants take turns within one process, so that a busy neighbour slows all of them. Writes one
JSON per question to `benchmarks/results/speed/` and two pictures to `docs/images/`. lightly joins
where it is installed (`pip install lightly`).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import measured
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from longtail.losses import BalancedBCE
from longtail.nn import Linear, Network, build
from longtail.nn.mae import (
    Masked,
    MaskedAutoencoder,
    initialise,
    random_masking,
    to_patches,
    transformer,
)
from longtail.report.svg import line_file

PICTURES = Path(__file__).parents[1] / "docs" / "images"
BATCH = 64
SMALL, PAPER = {"width": 128, "depth": 2, "heads": 4}, {"width": 512, "depth": 8, "heads": 16}


class AllTokens(MaskedAutoencoder):
    """The same, but hidden patches go through the encoder too, as its decoder's mask token would:
    zeros.
    """

    def encode(self, normal: Tensor) -> tuple[Tensor, Masked]:
        """All tokens, hidden ones without their pixels."""
        body = transformer(self.network)
        tokens = body._pos_embed(body.patch_embed(normal))
        prefix, patches = tokens[:, : body.num_prefix_tokens], tokens[:, body.num_prefix_tokens :]
        masked = random_masking(patches, self.ratio)
        seen = patches * ~masked.hidden[..., None]
        # The decoder receives every token in its place: nothing has to be put back.
        places = torch.arange(patches.shape[1]).expand(len(patches), -1)
        return body.norm(body.blocks(torch.cat([prefix, seen], 1))), Masked(
            seen, masked.hidden, places
        )


def vit_tiny(patch: int = 4) -> Network:
    return initialise(build({"name": "vit_tiny", "size": 32, "patch": patch, "pool": "avg"}))


class Lightly(nn.Module):
    """lightly's parts, put together as its documentation does, with the same encoder, decoder,
    target and loss.
    """

    def __init__(self, network: Network, *, width: int, depth: int, heads: int) -> None:
        super().__init__()
        parts: Any = importlib.import_module("lightly.models.modules")
        body = transformer(network)
        self.utils: Any = importlib.import_module("lightly.models.utils")
        self.patch, self.normalize = body.patch_embed.patch_size[0], network.normalize
        self.backbone = parts.MaskedVisionTransformerTIMM(vit=body)
        self.decoder = parts.MAEDecoderTIMM(
            num_patches=body.patch_embed.num_patches,
            patch_size=self.patch,
            embed_dim=body.embed_dim,
            decoder_embed_dim=width,
            decoder_depth=depth,
            decoder_num_heads=heads,
            mlp_ratio=4.0,
            proj_drop_rate=0.0,
            attn_drop_rate=0.0,
        )

    def forward(self, image: Tensor) -> Tensor:
        """The loss."""
        normal, length = self.normalize(image), self.backbone.sequence_length  # type: ignore[operator]
        keep, hide = self.utils.random_token_mask(
            size=(len(image), length), mask_ratio=0.75, device=image.device
        )
        embedded = self.decoder.embed(self.backbone.encode(images=normal, idx_keep=keep))
        tokens = self.utils.repeat_token(self.decoder.mask_token, (len(image), length))
        tokens = self.decoder.decode(
            self.utils.set_at_index(tokens, keep, embedded.type_as(tokens))
        )
        predicted = self.decoder.predict(self.utils.get_at_index(tokens, hide))
        wanted = self.utils.get_at_index(to_patches(normal, self.patch), hide - 1)
        wanted = (wanted - wanted.mean(-1, keepdim=True)) / (
            wanted.var(-1, keepdim=True) + 1e-6
        ).sqrt()
        loss: Tensor = (predicted - wanted).square().mean()
        return loss


def step(module: nn.Module, look: Callable[[], Tensor]) -> Callable[[], None]:
    """Forward, backward and AdamW."""
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], 1e-4)

    def once() -> None:
        optimizer.zero_grad(set_to_none=True)
        look().backward()
        optimizer.step()

    return once


def in_turns(contestants: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """Each one's median milliseconds, measured in turns; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, act in contestants.items():
            before = time.perf_counter()
            act()
            if number:
                times[name].append(1000 * (time.perf_counter() - before))
    return {name: statistics.median(item) for name, item in times.items()}


def peak(rounds: int = 15) -> float:
    """GFLOP/s of the fastest of some square matrix products in 32 bits."""
    found = []
    for side in (512, 1024, 2048):
        a, b = torch.randn(side, side), torch.randn(side, side)
        best = min(_seconds(lambda a=a, b=b: a @ b) for _ in range(rounds))  # type: ignore[misc]
        found.append(2 * side**3 / best / 1e9)
    return max(found)


def _seconds(act: Callable[[], Any]) -> float:
    before = time.perf_counter()
    act()
    return time.perf_counter() - before


def flops(act: Callable[[], Any]) -> float:
    """GFLOP of the matrix products in a step."""
    with FlopCounterMode(display=False) as counter:
        act()
    return float(counter.get_total_flops()) / 1e9


def mgp_step(decoder: Mapping[str, int], rounds: int) -> dict[str, Any]:
    """A step with visible tokens only, one with all, and lightly's."""
    image = torch.rand(BATCH, 3, 32, 32)
    visible, everything = MaskedAutoencoder(vit_tiny(), **decoder), AllTokens(vit_tiny(), **decoder)
    contestants = {
        "visible": step(visible, lambda: visible(image).loss),
        "all": step(everything, lambda: everything(image).loss),
    }
    if importlib.util.find_spec("lightly"):
        theirs = Lightly(vit_tiny(), **decoder)
        contestants["lightly"] = step(theirs, lambda: theirs(image))
    else:
        print("lightly is not installed: it does not take part", flush=True)
    times, most = in_turns(contestants, rounds=rounds), peak()
    work = {name: flops(contestants[name]) for name in ("visible", "all")}
    figures: dict[str, Any] = {f"{name}_ms": round(value, 1) for name, value in times.items()}
    figures["all_over_visible"] = round(times["all"] / times["visible"], 2)
    if "lightly" in times:
        figures["lightly_over_visible"] = round(times["lightly"] / times["visible"], 2)
    figures["peak_gflops"] = round(most, 1)
    figures |= {
        f"{name}_percent_of_peak": round(100 * item / times[name] * 1000 / most, 1)
        for name, item in work.items()
    }
    return figures


def tokens(rounds: int) -> dict[str, Any]:
    """The encoder's forward and backward over the number of visible tokens, of 256."""
    image, network = torch.rand(16, 3, 32, 32), vit_tiny(patch=2)
    contestants, most = {}, 256
    for visible in (16, 32, 64, 96, 128, 192):
        item = MaskedAutoencoder(network, ratio=1 - visible / most, width=16, depth=1, heads=2)

        def act(item: MaskedAutoencoder = item) -> None:
            encoded, _ = item.encode(item.network.normalize(image))
            encoded.sum().backward()

        contestants[str(visible)] = act
    times = in_turns(contestants, rounds=rounds)
    points = [(float(name), value) for name, value in times.items()]
    _draw("livt-tokens", {"encoder": points}, x="visible tokens of 256", y="ms for 16 images")
    return {
        "ms_by_visible_tokens": {name: round(value, 1) for name, value in times.items()},
        **_straight(points),
    }


def classes(rounds: int) -> dict[str, Any]:
    """Head and Balanced BCE, forward and backward, over the number of classes; 128 rows of 768
    features.
    """
    contestants, features = {}, torch.randn(128, 768)
    for count in (10, 100, 365, 1000, 2000, 4000, 8142):
        head, loss = Linear(768, count), BalancedBCE(torch.arange(1, count + 1))
        target = torch.rand(128, count).softmax(1)

        def act(head: Linear = head, loss: BalancedBCE = loss, target: Tensor = target) -> None:
            loss(head(features), target).backward()

        contestants[str(count)] = act
    times = in_turns(contestants, rounds=rounds)
    points = [(float(name), value) for name, value in times.items()]
    _draw("livt-classes", {"head and Bal-BCE": points}, x="classes", y="ms for 128 images")
    large = [(x, y) for x, y in points if x >= 1000]  # below, a call costs more than its classes
    return {
        "ms_by_classes": {name: round(value, 2) for name, value in times.items()},
        **_straight(large),
    }


def _draw(name: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(line_file(lines, x=x, y=y), encoding="utf-8")


def _straight(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    """How straight a line is: the exponent of the best power law, and the share of variance that a
    straight line explains.
    """
    x, y = zip(*points, strict=True)
    logarithms = torch.tensor(points, dtype=torch.float64).log()
    slope = statistics.linear_regression(logarithms[:, 0].tolist(), logarithms[:, 1].tolist()).slope
    return {
        "power": round(slope, 2),
        "r_squared_of_a_line": round(statistics.correlation(x, y) ** 2, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", help="a question; may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size = f"vit_tiny, 32 pixels, patch 4, batch {BATCH}"
    questions: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        "livt_step": (
            (
                f"What does hiding patches from the encoder save in a pretraining step ({size},"
                " decoder 128 wide with 2 blocks)?"
            ),
            lambda: mgp_step(SMALL, options.rounds),
        ),
        "livt_step_paper": (
            f"And with the paper's decoder, 512 wide with 8 blocks ({size})?",
            lambda: mgp_step(PAPER, options.rounds),
        ),
        "livt_tokens": (
            "Does the encoder's cost grow linearly with visible tokens (vit_tiny, patch 2)?",
            lambda: tokens(options.rounds),
        ),
        "livt_classes": (
            "Does Balanced BCE's cost grow linearly with classes, to 8,142?",
            lambda: classes(options.rounds),
        ),
    }
    for name, (question, measure) in questions.items():
        if options.only and name not in options.only:
            continue
        torch.manual_seed(0)
        figures = measure()
        command = (
            f"python benchmarks/livt_speed.py --threads {options.threads} --rounds {options.rounds}"
            f" --only {name}"
        )
        measured.write(
            name,
            figures,
            plan="livt_speed",
            question=question,
            command=command,
            threads=options.threads,
        )


if __name__ == "__main__":
    main()
