"""ESZSL is its closed form, and calibrated stacking a bias on unseen classes."""

import torch
import torch.nn.functional as F

from longtail.methods.eszsl import CalibratedStacking, Eszsl
from longtail.nn import ClassVectors, build
from longtail.testing import check_method


def test_the_solution_equals_the_formula_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    s = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    target = torch.arange(30) % 4
    solved = Eszsl.fit(x, target, s)
    x, s = F.normalize(x, dim=1), F.normalize(s, dim=1)
    y = torch.full((30, 4), -1.0, dtype=torch.float64)
    y[torch.arange(30), target] = 1.0
    for gamma, lambda_ in ((0.1, 10.0), (1.0, 0.01)):
        left = torch.linalg.inv(x.T @ x + gamma * torch.eye(5))
        right = torch.linalg.inv(s.T @ s + lambda_ * torch.eye(7))
        expected = left @ x.T @ y @ s @ right
        assert torch.allclose(solved.weight(gamma=gamma, lambda_=lambda_), expected, atol=1e-9)
        (result,) = solved.all_scores(7 * x, 3 * s, gammas=[gamma], lambdas=[lambda_])
        assert result[:2] == (gamma, lambda_)
        assert torch.allclose(result[2], x @ expected @ s.T, atol=1e-9)


def stacking() -> CalibratedStacking:
    head = ClassVectors(12, 6, width=5, unit=True, scale=4.0)
    head.vectors.copy_(torch.rand(6, 5))
    seen = torch.tensor([True] * 5 + [False])
    return CalibratedStacking(build({"name": "vectors", "size": 12}), head, seen, bias=0.5)


def test_the_bias_is_added_to_unseen_classes_alone() -> None:
    method, image = stacking().eval(), torch.rand(3, 12)
    bias = torch.tensor([0.0] * 5 + [0.5])
    assert torch.allclose(method.predict(image), method.head(image) + bias)


def test_it_keeps_the_contract_of_methods() -> None:
    target = torch.tensor([0, 0, 1, 1, 2, 3, 4])
    batch = {"image": torch.rand(7, 12), "target": target, "position": torch.arange(7)}
    check_method(stacking, batch)
