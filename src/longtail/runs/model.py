"""The folder `model/` of a run: weights, the spec that rebuilds their network, and a card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_model

from longtail.analysis.writing import warn_on_error
from longtail.core import Method
from longtail.data.dataset import Dataset, FeatureBackbone
from longtail.data.readers.features import backbone_weights
from longtail.engine.machine import choose
from longtail.errors import LongtailError
from longtail.nn.files import build_saved, load_weights
from longtail.nn.networks import Classifier, Network, build, is_custom, join
from longtail.records.documents import read_document, write_document
from longtail.records.files import atomic_write, write_text
from longtail.records.kinds import MODEL
from longtail.records.layout import ModelFolder, RunFolder
from longtail.records.row import Row, Summary, read_row
from longtail.records.scores import long_tail_scores, with_unit
from longtail.runs.images import Preprocessing
from longtail.runs.predicting import Loaded
from longtail.runs.predictions import read_thresholds


def load(run: str | Path, *, device: str = "auto", trust: bool = False) -> Loaded:
    """Load a finished run's network: built from its spec and filled with its weights.

    Nothing in the files is executed. A custom network ("package.module:function") is code
    outside the files; it is imported only with `trust`.
    """
    folder = Path(run)
    row = read_row(folder)
    files = RunFolder(folder).model
    spec = read_document(files.spec, MODEL)
    network, machine = (
        load_weights(build_saved(spec["network"], files.weights, trust=trust), files.weights),
        choose(device=device, precision="fp32"),
    )
    machine.place_module(network.eval().requires_grad_(False))
    classes, size = tuple(spec["classes"]), int(spec["size"])
    preprocessing = Preprocessing.from_spec(spec)
    thresholds = read_thresholds(files.thresholds, classes=len(classes))
    return Loaded(folder, network, classes, size, row, preprocessing, thresholds, machine)


def deployed(method: Method[Any], dataset: Dataset) -> Classifier:
    """The network that a method deploys for inference.

    Refused where it has no spec to rebuild it from, or not one logit for each class: an encoder is
    no classifier, even if it has as many features as there are classes.
    """
    network = method.eval().deploy()
    if not isinstance(network, Classifier):
        raise LongtailError(
            f"expected a method that deploys a classifier, got {type(method).__name__}, which "
            f"deploys a {type(network).__name__} without a head: pretraining recipes end with a "
            "linear probe, Classify(Frozen(network), Linear(...), ...), or are run as a stage of "
            "another recipe"
        )
    if network.dim != len(dataset.classes):
        raise LongtailError(
            f"expected logits of the {len(dataset.classes)} classes of {dataset.name}, "
            f"got a network for {network.dim}"
        )
    return network


def check_rebuilt(network: Classifier) -> None:
    """Refuse a network that its spec does not rebuild: it could be saved, but never be loaded."""
    rebuilt = build(network.spec, trust=True).state_dict()  # training imported it
    state = network.state_dict()
    differ = [
        name
        for name in {**state, **rebuilt}
        if name not in state or name not in rebuilt or state[name].shape != rebuilt[name].shape
    ]
    if differ:
        raise LongtailError(
            f"expected a network that its spec rebuilds, got a {type(network).__name__} "
            f"that has another {differ[0]}: "
            "build networks with longtail.nn.build and leave their layers as they are"
        )


def read_backbone(record: FeatureBackbone) -> Network | None:
    """The network that computed features, in eval mode; None if their file lacks its weights.

    A custom network is None as well: the file may come from elsewhere, and this would run code.
    """
    stored = backbone_weights(record.file)
    if stored is None or _has_custom(record.network):
        return None
    network = build_saved(record.network, record.file)
    try:
        network.load_state_dict(load_tensors(stored))
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"the weights in {record.file} are not those of its network: {reason}"
        ) from error
    return network.eval().requires_grad_(False)


def _has_custom(spec: Mapping[str, Any]) -> bool:
    inner = [spec[key] for key in ("network", "backbone") if key in spec]
    return is_custom(spec["name"]) or any(map(_has_custom, inner))


def write_model(folder: Path, network: Classifier, dataset: Dataset, row: Row) -> None:
    """Write the weights, the spec and the card.

    A network on features is joined with the backbone that computed them, if it is known: the saved
    network takes images.
    """
    files, saved = ModelFolder(folder), network
    size, fit = row["size"], Preprocessing.of(dataset, row["size"])
    if dataset.backbone is not None:
        with warn_on_error("the network was saved without its backbone", "another --out"):
            backbone = read_backbone(dataset.backbone)
            if backbone is not None:
                joined = join(network, backbone)
                assert isinstance(joined, Classifier)
                saved, size = joined, dataset.backbone.size
                fit = Preprocessing.from_spec({"size": size, "fit": dataset.backbone.fit})
    with atomic_write(files.weights) as part:
        save_model(saved, str(part))
    spec = {
        "network": saved.spec,
        "classes": list(dataset.classes),
        "size": size,
        "fit": fit.to_spec(),
    }
    write_document(files.spec, spec)
    write_text(files.card, _card(dataset, row, fit, joined=saved is not network))


def _by_softmax(test: Summary) -> str:
    """The calibration error of softmax probabilities, where the row has that of a sigmoid."""
    other = test["calibration"]["softmax"]["ece"]
    return (
        ""
        if test["confidence"] == "softmax"
        else f"; by softmax, as probabilities are given, {other:.3f}"
    )


def _headline(row: Row, test: Summary) -> str:
    """The score that ranks, where it is not among the accuracies that follow."""
    name = row["headline"]["name"]
    if name in long_tail_scores(test):
        return ""
    shown = row["labels"][name]
    return f"{shown['description']} {with_unit(test['scores'][name], shown)}, "


def _input(dataset: Dataset, row: Row, fit: Preprocessing, *, joined: bool) -> str:
    vectors = f"feature vectors (N, {row['size']}), as the data has them"
    if dataset.has_vectors and not joined:
        return f"Input: {vectors}."
    images = (
        f"Input: RGB in [0, 1], {fit.size} x {fit.size} pixels; the network normalises.\n"
        f"An image is {fit}."
    )
    more = f"\nIt was trained on features of its backbone, and also takes {vectors}."
    return images + more if joined else images


def _card(dataset: Dataset, row: Row, fit: Preprocessing, *, joined: bool) -> str:
    test, counts = row["test"], dataset.counts
    version = row["versions"]["longtail"]
    if test is None:
        tested = "It was never tested: the data has no test images."
    else:
        groups = ", ".join(
            f"{name} {'-' if value is None else f'{value:.1%}'}"
            for name, value in test["groups"].items()
        )
        tested = (
            f"Test ({test['images']:,} images; test-time averaging: {row['tta']}): "
            f"{_headline(row, test)}top-1 {test['top1']:.1%}, "
            f"balanced {test['balanced']:.1%}, {groups} ({test['group_rule']}); "
            f"calibration error {test['ece']:.3f} (by {test['confidence']}{_by_softmax(test)})."
        )
    caveats = f"\nNote: {'; '.join(dataset.caveats)}.\n" if dataset.caveats else ""
    return f"""# {row["recipe"]} on {dataset.name}

An image classifier for {len(dataset.classes)} classes, trained with longtail {version}
on {len(dataset.train):,} images ({int(counts.min()):,} to {int(counts.max()):,} per class).

```python
import longtail

longtail.load("FOLDER OF THE RUN").predict("image.png").labels
```

{_input(dataset, row, fit, joined=joined)}
{row["parameters"]:,} parameters; weights: {row["selection"]}.

{tested}
{caveats}"""
