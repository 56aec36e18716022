import pickle
from typing import Any

import numpy as np
import pytest
import torch

from longtail.data.samplers import (
    ClassBalanced,
    Instance,
    PerDomain,
    ProgressivelyBalanced,
    RepeatedAugmentation,
    Sampler,
    SomeDomains,
    SquareRoot,
)

COUNTS = (500, 100, 20, 4, 1)
TARGETS = torch.repeat_interleave(torch.arange(5), torch.tensor(COUNTS))[
    torch.randperm(625, generator=torch.Generator().manual_seed(0))
]
DOMAINS = tuple((np.arange(625) % 10 < 2).astype(int) + (np.arange(625) % 25 == 0))
SAMPLERS: list[Sampler] = [
    Instance(),
    ClassBalanced(),
    SquareRoot(),
    ProgressivelyBalanced(epochs=10),
    RepeatedAugmentation(),
    RepeatedAugmentation(repeats=1),
    PerDomain(DOMAINS),
    SomeDomains(DOMAINS, batch=50),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: str(sampler)[:24])
def test_an_order_is_a_function_of_seed_and_epoch(sampler: Sampler) -> None:
    order = sampler.order(TARGETS, epoch=4, seed=7)
    assert len(order) == len(TARGETS)
    assert order.min() >= 0
    assert order.max() < len(TARGETS)
    assert np.array_equal(
        order, pickle.loads(pickle.dumps(sampler)).order(TARGETS, epoch=4, seed=7)
    )
    assert not np.array_equal(order, sampler.order(TARGETS, epoch=5, seed=7))
    assert not np.array_equal(order, sampler.order(TARGETS, epoch=4, seed=8))


def shares(sampler: Sampler, epoch: int) -> list[float]:
    drawn = [
        TARGETS[torch.from_numpy(sampler.order(TARGETS, epoch=epoch, seed=seed))]
        for seed in range(40)
    ]
    return (torch.bincount(torch.cat(drawn), minlength=5) / (40 * 625)).tolist()


def test_class_shares_are_those_of_the_paper() -> None:
    instance = np.array(COUNTS) / 625
    root = np.sqrt(COUNTS) / np.sqrt(COUNTS).sum()
    assert shares(Instance(), 3) == pytest.approx(instance)
    assert shares(ClassBalanced(), 3) == pytest.approx([0.2] * 5, abs=1e-3)
    assert shares(SquareRoot(), 3) == pytest.approx(root, abs=1e-3)
    for epoch in (0, 3, 10, 20):
        t = min(epoch / 10, 1)
        assert shares(ProgressivelyBalanced(epochs=10), epoch) == pytest.approx(
            (1 - t) * instance + t * 0.2, abs=1e-3
        )


def test_instance_shows_every_image_once() -> None:
    assert np.array_equal(np.sort(Instance().order(TARGETS, epoch=0, seed=0)), np.arange(625))


def test_images_of_a_class_take_turns() -> None:
    order = ClassBalanced().order(TARGETS, epoch=0, seed=0)
    used = np.bincount(order, minlength=625)
    for label in range(5):
        mine = used[TARGETS.numpy() == label]
        assert mine.max() - mine.min() <= 1
    assert np.bincount(TARGETS[order].numpy()).tolist() == pytest.approx([125] * 5, abs=1)


def test_classes_without_images_are_not_sampled() -> None:
    target = torch.tensor([1, 1, 1, 4])
    order = ClassBalanced().order(target, epoch=0, seed=0)
    assert target[order].bincount(minlength=6).tolist() == [0, 2, 0, 0, 2, 0]


@pytest.mark.parametrize("rows", [1, 2, 7, 9, 300])
def test_repeats_are_neighbours_and_all_images_come_within_as_many_epochs(rows: int) -> None:
    target = torch.zeros(rows, dtype=torch.long)
    epochs = [
        RepeatedAugmentation(repeats=3).order(target, epoch=epoch, seed=0) for epoch in range(6)
    ]
    for order in epochs:
        assert len(order) == rows
        assert all(len(set(order[start : start + 3])) == 1 for start in range(0, rows, 3))
        assert len(set(order)) == -(-rows // 3)
    assert set(np.concatenate(epochs[:3])) == set(np.concatenate(epochs[3:])) == set(range(rows))


def test_each_domain_has_an_equal_share_of_any_batch() -> None:
    domains = np.array(DOMAINS)
    assert len(np.unique(domains)) == 3
    order = PerDomain(DOMAINS).order(TARGETS, epoch=0, seed=0)
    for start in range(0, 600, 30):
        assert np.bincount(domains[order[start : start + 30]]).tolist() == [10, 10, 10]
    used = np.bincount(order, minlength=625)
    for domain in range(3):
        assert np.ptp(used[domains == domain]) <= 1


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="a domain for each of the 625 rows, got 2"):
        PerDomain((0, 1)).order(TARGETS, epoch=0, seed=0)
    with pytest.raises(ValueError, match="at least 1"):
        ProgressivelyBalanced(epochs=0)
    with pytest.raises(ValueError, match="at least 1"):
        RepeatedAugmentation(repeats=0)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: str(sampler)[:24])
def test_labels_may_be_a_tensor_an_array_or_a_list(sampler: Any) -> None:
    orders = [
        sampler.order(targets, epoch=1, seed=2)
        for targets in (TARGETS, TARGETS.numpy(), TARGETS.tolist())
    ]
    assert all(np.array_equal(order, orders[0]) for order in orders)


@pytest.mark.parametrize("targets", [torch.eye(3)[[0, 1, 2, 0]], torch.zeros(0, dtype=torch.long)])
def test_distributions_and_nothing_are_refused(targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="expected class indices"):
        ClassBalanced().order(targets, epoch=0, seed=0)


def test_batches_have_some_domains_in_equal_shares() -> None:
    sampler = SomeDomains(DOMAINS, batch=20, per_batch=2)
    order = sampler.order(TARGETS, epoch=0, seed=0)[:620]
    batches = np.asarray(DOMAINS)[order].reshape(-1, 20)
    numbers = [np.unique(batch, return_counts=True) for batch in batches]
    assert {tuple(counts.tolist()) for _, counts in numbers} == {(10, 10)}
    pairs = [tuple(domains.tolist()) for domains, _ in numbers]
    assert {*pairs} == {(0, 1), (0, 2), (1, 2)}
    # Images of a domain come equally often, give or take one
    for domain in range(3):
        uses = np.bincount(order, minlength=625)[np.asarray(DOMAINS) == domain]
        assert uses.max() - uses.min() <= 1
