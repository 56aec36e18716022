"""Detect objects with an encoder that was pretrained without labels, as in BatchFormer's appendix.

    python examples/detection.py
    python examples/detection.py --voc VOC2007 --size 600 --start random --start moco=runs/moco

Faster R-CNN of torchvision on the feature maps of a run of `moco_v2` or `moco_v3` (a convolutional
network), fine-tuned on any folder in the layout of PASCAL VOC: JPEGImages/NAME.jpg,
Annotations/NAME.xml, ImageSets/Main/trainval.txt and test.txt. Without --voc it makes a folder of
40 images of shapes, pretrains MoCo on `shapes-lt` with and without BatchFormer, and compares both
with random weights, in a few minutes of one core; torchvision has 512 `--proposals` by default.
Needs: pip install 'longtail[detection]'
"""

from __future__ import annotations

import argparse
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faster_coco_eval import COCO, COCOeval_faster
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator

import longtail
from longtail.engine.seeding import seed_all
from longtail.nn import Network, build
from longtail.nn.encoders import load_encoder, read_weights
from longtail.nn.hidden import after, stages

SHAPES = ("circle", "square", "triangle")


@dataclass(frozen=True)
class Picture:
    """An image file, and the boxes (M, 4) of its objects as x1, y1, x2, y2."""

    path: Path
    boxes: Tensor
    labels: Tensor  # (M,), counted from 1: 0 is the background
    difficult: Tensor  # (M,), bool: neither asked for nor punished


# ------------------------------------------------------------------------------------- data


def make_shapes(folder: Path, *, images: int = 40, size: int = 96, seed: int = 0) -> Path:
    """Write images of one to three shapes in VOC's layout, half of them for testing."""
    rng = np.random.default_rng(seed)
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(images):
        noise = rng.integers(90, 165, (size // 4, size // 4, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((size, size), Image.Resampling.BICUBIC)
        root, draw = ElementTree.Element("annotation"), ImageDraw.Draw(image)
        taken: list[tuple[int, int, int]] = []
        for _ in range(rng.integers(1, 4)):
            side = int(rng.integers(size // 5, size // 3))
            x, y = (int(value) for value in rng.integers(1, size - side - 1, 2))
            if any(abs(x - a) < side + s and abs(y - b) < side + s for a, b, s in taken):
                continue  # shapes do not overlap
            taken.append((x, y, side))
            kind, box = SHAPES[rng.integers(3)], (x, y, x + side, y + side)
            colour = tuple(int(value) for value in rng.integers(0, 256, 3))
            if kind == "circle":
                draw.ellipse(box, fill=colour)
            elif kind == "square":
                draw.rectangle(box, fill=colour)
            else:
                draw.polygon([(x, y + side), (x + side, y + side), (x + side // 2, y)], fill=colour)
            entry = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(entry, "name").text = kind
            ElementTree.SubElement(entry, "difficult").text = "0"
            bounds = ElementTree.SubElement(entry, "bndbox")
            for name, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
                ElementTree.SubElement(bounds, name).text = str(value + 1)
        image.save(folder / "JPEGImages" / f"{number:06}.jpg", quality=95)
        ElementTree.ElementTree(root).write(folder / "Annotations" / f"{number:06}.xml")
    for split, start in (("trainval", 0), ("test", 1)):
        names = [f"{number:06}\n" for number in range(start, images, 2)]
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(names))
    return folder


def read_voc(folder: Path, split: str) -> list[tuple[Path, list[tuple[str, bool, list[float]]]]]:
    """The images of a split, each with (class, difficult, box) of its objects."""
    names = (folder / "ImageSets" / "Main" / f"{split}.txt").read_text().split()
    rows = []
    for name in names:
        objects = []
        for entry in ElementTree.parse(folder / "Annotations" / f"{name}.xml").iter("object"):
            # VOC counts pixels from 1
            box = [
                float(entry.findtext(f"bndbox/{key}", "")) - 1
                for key in ("xmin", "ymin", "xmax", "ymax")
            ]
            difficult = entry.findtext("difficult", "0") == "1"
            objects.append((entry.findtext("name", ""), difficult, box))
        rows.append((folder / "JPEGImages" / f"{name}.jpg", objects))
    return rows


def pictures(folder: Path, split: str, classes: Sequence[str]) -> list[Picture]:
    """The images of a split as tensors."""
    return [
        Picture(
            path,
            torch.tensor([box for _, _, box in objects]).reshape(-1, 4),
            torch.tensor([1 + classes.index(name) for name, _, _ in objects], dtype=torch.long),
            torch.tensor([difficult for _, difficult, _ in objects], dtype=torch.bool),
        )
        for path, objects in read_voc(folder, split)
    ]


def pixels(path: Path) -> Tensor:
    """An image as floats (3, H, W) in [0, 1]."""
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255


# ------------------------------------------------------------------------------------- model


class FeatureMaps(nn.Module):
    """The feature maps after the last stage of a convolutional network."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.eval()
        with torch.no_grad():
            self.out_channels = self(torch.zeros(1, 3, 64, 64)).shape[1]  # torchvision reads it

    def forward(self, image: Tensor) -> Tensor:
        """Maps (N, out_channels, H, W)."""
        kept: list[Tensor] = []

        def keep(maps: Tensor) -> Tensor:
            kept.append(maps)
            return maps

        with after(stages(self.network)[-1:], keep):
            self.network(image)
        return kept[0]


def backbone(start: Path, *, weights: bool) -> Network:
    """The network of a run with its pretrained weights, or with random ones."""
    encoder = read_weights(start)
    assert encoder.spec is not None
    network = build(encoder.spec)
    return load_encoder(network, encoder) if weights else network


def detector(network: Network, classes: int, *, size: int, proposals: int) -> FasterRCNN:
    """Faster R-CNN on one level of feature maps; the network normalises its images itself."""
    sides = tuple(size // share for share in (8, 5, 3))
    return FasterRCNN(
        FeatureMaps(network),
        classes + 1,
        rpn_anchor_generator=AnchorGenerator((sides,), ((0.5, 1.0, 2.0),)),
        min_size=size,
        max_size=2 * size,
        image_mean=[0.0] * 3,
        image_std=[1.0] * 3,
        box_batch_size_per_image=proposals,
        rpn_post_nms_top_n_train=4 * proposals,
        rpn_post_nms_top_n_test=2 * proposals,
    )


def train(
    model: FasterRCNN, rows: Sequence[Picture], *, epochs: int, batch: int, lr: float, seed: int
) -> None:
    """Fine-tune with SGD and a cosine."""
    seed_all(seed, "detection")
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    steps = epochs * (len(rows) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(rows)).tolist()
        for first in range(0, len(rows) - batch + 1, batch):
            chosen = [rows[index] for index in order[first : first + batch]]
            targets = [{"boxes": row.boxes, "labels": row.labels} for row in chosen]
            losses = model([pixels(row.path) for row in chosen], targets)
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def detect(model: FasterRCNN, rows: Sequence[Picture]) -> list[dict[str, Tensor]]:
    """Boxes, labels and scores in each image."""
    model.eval()
    return [model([pixels(row.path)])[0] for row in rows]


# ------------------------------------------------------------------------------------- scores


def coco_scores(
    rows: Sequence[Picture], found: Sequence[Mapping[str, Tensor]], classes: Sequence[str]
) -> dict[str, float]:
    """AP over the overlaps 0.5 to 0.95, and at 0.5 and 0.75, as COCO defines them."""
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for number, (row, predictions) in enumerate(zip(rows, found, strict=True), start=1):
        with Image.open(row.path) as image:
            images.append({"id": number, "width": image.width, "height": image.height})
        for box, label, difficult in zip(row.boxes, row.labels, row.difficult, strict=True):
            entry = _coco(number, box, label)
            area = float(entry["bbox"][2] * entry["bbox"][3])
            objects.append(
                {**entry, "id": len(objects) + 1, "area": area, "iscrowd": int(difficult)}
            )
        for box, label, score in zip(
            predictions["boxes"], predictions["labels"], predictions["scores"], strict=True
        ):
            detections.append({**_coco(number, box, label), "score": float(score)})
    if not detections:
        return {"AP": 0.0, "AP50": 0.0, "AP75": 0.0}
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    truth = COCO({"images": images, "annotations": objects, "categories": categories})
    evaluation = COCOeval_faster(truth, truth.loadRes(detections), iouType="bbox")
    evaluation.run()
    stats = evaluation.stats_as_dict
    return {"AP": stats["AP_all"], "AP50": stats["AP_50"], "AP75": stats["AP_75"]}


def _coco(image: int, box: Tensor, label: Tensor) -> dict[str, Any]:
    x1, y1, x2, y2 = box.tolist()
    return {"image_id": image, "category_id": int(label), "bbox": [x1, y1, x2 - x1, y2 - y1]}


def voc_score(
    rows: Sequence[Picture], found: Sequence[Mapping[str, Tensor]], classes: int
) -> float:
    """VOC 2007: mean over classes of the 11-point average precision at an overlap of 0.5."""
    averages = []
    for label in range(1, classes + 1):
        count, ranked = 0, []
        for row, predictions in zip(rows, found, strict=True):
            of_class = row.labels == label
            boxes, difficult = row.boxes[of_class], row.difficult[of_class]
            count += int((~difficult).sum())
            used, mine = set(), predictions["labels"] == label
            scores = predictions["scores"][mine]
            for index in scores.argsort(descending=True).tolist():
                overlaps = [overlap(predictions["boxes"][mine][index], box) for box in boxes]
                best = int(np.argmax(overlaps)) if overlaps else -1
                hit = best >= 0 and overlaps[best] >= 0.5
                if hit and difficult[best]:
                    continue
                ranked.append((float(scores[index]), hit and best not in used))
                if hit:
                    used.add(best)
        if not count:
            continue
        hits = np.cumsum([hit for _, hit in sorted(ranked, key=lambda row: -row[0])] or [False])
        recall, precision = hits / count, hits / np.arange(1, len(hits) + 1)
        points = [
            precision[recall >= point - 1e-9].max(initial=0.0) for point in np.linspace(0, 1, 11)
        ]
        averages.append(float(np.mean(points)))
    return float(np.mean(averages))


def overlap(first: Tensor, second: Tensor) -> float:
    """Intersection over union of two boxes, with VOC's pixels that count from edge to edge."""
    left, top = torch.maximum(first[:2], second[:2]).tolist()
    right, bottom = torch.minimum(first[2:], second[2:]).tolist()
    shared = max(0.0, right - left + 1) * max(0.0, bottom - top + 1)
    areas = [float((box[2] - box[0] + 1) * (box[3] - box[1] + 1)) for box in (first, second)]
    return float(shared / (sum(areas) - shared))


# ------------------------------------------------------------------------------------- program


def compare(
    voc: Path,
    starts: Mapping[str, Path | None],
    *,
    size: int,
    proposals: int = 64,
    epochs: int = 30,
    batch: int = 4,
    lr: float = 0.01,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Fine-tune a detector from each start, and score it on the test images.

    Args:
        voc: a folder in VOC's layout.
        starts: by name, a run folder, or None for random weights in the network of the others.
        size: side of the images in pixels.
        proposals: boxes of an image that the head is trained on; torchvision's default is 512.
    """
    classes = sorted({name for _, rows in read_voc(voc, "trainval") for name, _, _ in rows})
    trainval, test = (pictures(voc, split, classes) for split in ("trainval", "test"))
    known = next(start for start in starts.values() if start is not None)
    scores = {}
    for name, start in starts.items():
        seed_all(seed, "detector")  # the same initial heads for all
        network = backbone(start or known, weights=start is not None)
        seed_all(seed, "heads")
        model = detector(network, len(classes), size=size, proposals=proposals)
        train(model, trainval, epochs=epochs, batch=batch, lr=lr, seed=seed)
        found = detect(model, test)
        scores[name] = coco_scores(test, found, classes)
        scores[name]["VOC 11-point"] = voc_score(test, found, len(classes))
        shown = "  ".join(f"{key} {100 * value:.1f}" for key, value in scores[name].items())
        print(f"{name}: {shown}", flush=True)
    return scores


def pretrained(folder: Path, *, epochs: int) -> dict[str, Path | None]:
    """Random weights, and MoCo without and with BatchFormer, pretrained on `shapes-lt`."""
    starts: dict[str, Path | None] = {"random": None}
    for name, batchformer in (("MoCo", "off"), ("MoCo + BatchFormer", "on")):
        starts[name] = folder / f"moco-{batchformer}"
        longtail.train(
            "moco_v2",
            "shapes-lt",
            folder / f"moco-{batchformer}",
            epochs=epochs,
            probe_epochs=1,
            batch=64,
            queue=1024,
            batchformer=batchformer,
            device="cpu",
        )
    return starts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--voc", type=Path, help="a folder in VOC's layout; made unless given")
    parser.add_argument("--start", action="append", default=[], help="random, or NAME=RUN")
    parser.add_argument("--size", type=int, default=96, help="side of the images in pixels")
    parser.add_argument("--proposals", type=int, default=64, help="boxes of an image to train on")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--pretrain-epochs", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        voc = given.voc or make_shapes(Path(temporary) / "voc", size=given.size)
        starts: dict[str, Path | None] = {
            name: Path(run) if run else None
            for name, _, run in (start.partition("=") for start in given.start)
        }
        starts = starts or pretrained(Path(temporary), epochs=given.pretrain_epochs)
        compare(voc, starts, size=given.size, proposals=given.proposals, epochs=given.epochs)


if __name__ == "__main__":
    main()
