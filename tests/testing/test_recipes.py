"""A good recipe passes, and each fault is caught by the check that is meant for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.core import Clock, Labelled, Method, Outcome, Stage, average
from longtail.data.dataset import Dataset
from longtail.data.loader import TrainLoader
from longtail.data.views import CropFlip
from longtail.engine.averaging import EMA
from longtail.engine.optim import sgd
from longtail.engine.run import Run
from longtail.losses import CrossEntropy
from longtail.methods import Classify
from longtail.nn import Classifier, Frozen, Linear, Network, build
from longtail.recipes.builders import validation
from longtail.recipes.supervised import cross_entropy
from longtail.testing import check_recipe

Make = Callable[[Network, Linear], Method[Labelled]]


def classify(network: Network, head: Linear) -> Method[Labelled]:
    return Classify(network, head, CrossEntropy())


def fit(run: Run, data: Dataset, make: Make = classify, name: str = "train") -> Method[Labelled]:
    network = build({"name": "fast_cnn", "size": data.size, "width": 4})
    return run.fit(
        Stage(
            name=name,
            method=make(network, Linear(network.dim, len(data.classes))),
            data=TrainLoader(
                data.train, view=CropFlip(8, pad=1, flip=False), batch=128, seed=run.view_seed
            ),
            epochs=2,
            optimizer=sgd(lr=0.1),
            averages={"ema": EMA(0.9)},
            evals=validation(data, data.size),
            keep=average("ema"),
        )
    )


def two_stages(run: Run, data: Dataset, *, factor: float = 1.0) -> Method[Labelled]:
    network = fit(run, data, name="features").deploy()
    assert isinstance(network, Classifier)
    return fit(
        run,
        data,
        lambda _, head: Classify(Frozen(network.network), head, CrossEntropy()),
        name="head",
    )


def test_a_good_recipe_passes() -> None:
    check_recipe(two_stages, factor=0.5)


def test_a_recipe_of_ours_passes() -> None:
    check_recipe(cross_entropy, "digits-lt", network="fast_cnn", epochs=1, batch=64)


class Forgetful(Classify):
    """Counts its steps outside of its state."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.steps = 0

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        terms = super().forward(batch, clock).terms
        return Outcome({"class": terms["class"] * (1 + self.steps)})

    def after_step(self, outcome: Outcome, clock: Clock) -> None:
        self.steps += 1


class Unseeded(Classify):
    """Draws from a generator of its own."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.generator = torch.Generator()
        self.generator.seed()

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        terms = super().forward(batch, clock).terms
        return Outcome({"class": terms["class"] * torch.rand((), generator=self.generator)})


class Shifted(Classify):
    """Predicts something else than it deploys."""

    def predict(self, image: Tensor) -> Tensor:
        return super().predict(image) + 1


def nothing(run: Run, data: Dataset) -> Any:
    fit(run, data)


def littering(run: Run, data: Dataset) -> Method[Labelled]:
    method = fit(run, data)
    run.folder.mkdir(exist_ok=True)
    (run.folder / "note.txt").write_text("trained")
    return method


def other_classes(run: Run, data: Dataset) -> Method[Labelled]:
    return fit(
        run, data, lambda network, _: Classify(network, Linear(network.dim, 11), CrossEntropy())
    )


def renaming() -> Callable[..., Method[Labelled]]:
    calls: list[int] = []

    def recipe(run: Run, data: Dataset) -> Method[Labelled]:
        calls.append(1)
        return fit(run, data, name=f"train{len(calls)}")

    return recipe


def made(kind: type[Classify]) -> Callable[..., Method[Labelled]]:
    def recipe(run: Run, data: Dataset) -> Method[Labelled]:
        return fit(run, data, lambda network, head: kind(network, head, CrossEntropy()))

    return recipe


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (nothing, "expected a trained method, got a NoneType"),
        (littering, r"a dry run wrote files: \['note.txt'\]"),
        (other_classes, "expected logits of the 10 classes of digits-lt, got a network for 11"),
        (renaming(), "trains again in a finished run"),
        (made(Forgetful), r"killed after batch 1 of stage 'train' and resumed.*other weights"),
        (made(Unseeded), "and resumed, the run has other weights"),
        (made(Shifted), "is not predict"),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_a_fault_is_caught(recipe: Callable[..., Method[Labelled]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_recipe(recipe)


def test_a_stage_of_one_batch_is_reported() -> None:
    with pytest.raises(AssertionError, match="stage 'train' has one batch"):
        check_recipe(cross_entropy, "digits-lt", network="fast_cnn", epochs=1, batch=364)


def test_keywords_that_cannot_be_flags_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flagless.py").write_text("def recipe(run, data, *, sizes: dict = None): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import flagless  # type: ignore[import-not-found]

    with pytest.raises(AssertionError, match=r"the keywords cannot be flags: .*sizes"):
        check_recipe(flagless.recipe)
