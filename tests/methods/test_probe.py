import math

import pytest
import torch

from longtail.losses import CrossEntropy
from longtail.methods import NearestNeighbours, Probe
from longtail.nn import Frozen, Linear, build


def test_neighbours_vote_by_their_similarity() -> None:
    generator = torch.Generator().manual_seed(0)
    bank, rows = torch.randn(30, 5, generator=generator), torch.randn(7, 5, generator=generator)
    target = torch.arange(30) % 3
    knn = NearestNeighbours(3 * bank, target, classes=4, neighbours=6, temperature=0.2)
    predictions = knn(0.1 * rows)
    for row, logits in zip(rows, predictions, strict=True):
        cosines = [float(row @ other / (row.norm() * other.norm())) for other in bank]
        nearest = sorted(range(30), key=lambda index: -cosines[index])[:6]
        votes = [0.0] * 4
        for index in nearest:
            votes[int(target[index])] += math.exp(cosines[index] / 0.2)
        assert logits.exp()[:3].tolist() == pytest.approx(votes[:3], rel=1e-4, abs=1e-20)
        assert logits[3] < -80, "a class that nobody votes for"
        assert logits.isfinite().all()


def test_the_bank_is_in_no_checkpoint_and_follows_to_the_device() -> None:
    knn = NearestNeighbours(torch.eye(3), torch.arange(3), classes=3, neighbours=9)
    assert knn.neighbours == 3
    assert not knn.state_dict()
    assert {name for name, _ in knn.named_buffers()} == {"features", "target"}


def test_a_probe_without_neighbours_has_one_head() -> None:
    network = build({"name": "fast_cnn", "size": 8, "width": 4})
    method = Probe(Frozen(network), Linear(16, 3), CrossEntropy())
    assert list(method.heads(torch.rand(2, 3, 8, 8))) == ["logits"]
    assert method.deploy().network is network


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"features \(M, dim\) and M classes, got \(3, 3\) and 2"):
        NearestNeighbours(torch.eye(3), torch.arange(2), classes=3)
    with pytest.raises(ValueError, match="at least one neighbour"):
        NearestNeighbours(torch.eye(3), torch.arange(3), classes=3, neighbours=0)
