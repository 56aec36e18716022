"""The supervised contrastive loss is its definition, row by row."""

import torch
from torch import Tensor

from longtail.losses.contrastive import supervised_contrastive


def slow(z: Tensor, target: Tensor, temperature: float, rows: Tensor) -> Tensor:
    total, counted = torch.zeros((), dtype=z.dtype), 0
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        same = [j for j in others if target[j] == target[i]]
        if not same:
            continue
        below = sum(torch.exp(z[i] @ z[j] / temperature) for j in others)
        logs = [torch.log(torch.exp(z[i] @ z[p] / temperature) / below) for p in same]
        total = total - rows[i] * torch.stack(logs).mean()
        counted += 1
    return total / max(counted, 1)


def test_it_equals_the_slow_definition_and_its_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    z = torch.nn.functional.normalize(z, dim=1).requires_grad_()
    target = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 4])
    rows = torch.rand(9, generator=generator, dtype=torch.float64)
    fast = supervised_contrastive(z, target, temperature=0.1, rows=rows)
    expected = slow(z, target, 0.1, rows)
    assert torch.allclose(fast, expected, rtol=1e-12)
    first, second = (torch.autograd.grad(loss, z)[0] for loss in (fast, expected))
    assert torch.allclose(first, second, rtol=1e-10)
    plain = supervised_contrastive(z, target, temperature=0.1)
    assert torch.allclose(plain, slow(z, target, 0.1, torch.ones(9)), rtol=1e-12)


def test_rows_that_are_all_alone_in_their_class_have_no_loss_and_a_finite_gradient() -> None:
    z = torch.eye(3, requires_grad=True)
    loss = supervised_contrastive(z, torch.tensor([0, 1, 2]), temperature=0.1)
    loss.backward()
    assert loss.item() == 0
    assert z.grad is not None
    assert not z.grad.any()
