import pytest
import torch
from torch import nn

from longtail.nn import Frozen, Queue, Teacher


def test_a_frozen_module_ignores_its_parent() -> None:
    parent = nn.Sequential(nn.Linear(3, 3), Frozen(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())))
    before = {name: value.clone() for name, value in parent[1].state_dict().items()}
    parent.train()
    out = parent(torch.randn(8, 3))
    assert not out.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in parent[1].state_dict().items())
    assert [name for name, p in parent.named_parameters() if p.requires_grad] == [
        "0.weight",
        "0.bias",
    ]


def test_an_enlarged_image_comes_back_to_the_teacher_as_it_was() -> None:
    small = torch.rand(2, 3, 8, 8)
    large = nn.functional.interpolate(small, size=(56, 56), mode="bicubic")
    assert torch.allclose(Teacher(nn.Identity(), size=8)(large), small, atol=1e-5)


def test_an_image_of_the_teachers_size_is_not_touched() -> None:
    image = torch.rand(2, 3, 8, 8)
    assert Teacher(nn.Identity(), size=8)(image) is image


def test_a_queue_keeps_the_last_rows_like_a_list() -> None:
    queue, kept = Queue(2, 5), list(Queue(2, 5)())
    torch.manual_seed(0)
    for count in (2, 2, 3, 5, 1):
        rows = torch.randn(count, 2)
        queue.push(rows)
        kept = (kept + list(rows))[-5:]
    start = int(queue.position)
    assert torch.equal(queue().roll(-start, 0), torch.stack(kept))


def test_a_queue_starts_with_unit_rows_and_is_saved() -> None:
    queue = Queue(4, 6)
    assert torch.allclose(queue().norm(dim=1), torch.ones(6))
    assert set(queue.state_dict()) == {"stored", "position"}


def test_what_a_queue_gave_does_not_change() -> None:
    queue = Queue(2, 3)
    given, copy = queue(), queue().clone()
    queue.push(torch.zeros(2, 2))
    assert torch.equal(given, copy)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 2), "a queue of 3 and 4 rows: enlarge"),
        ((2, 5), r"expected rows \(N, 2\), got \(2, 5\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused(shape: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Queue(2, 3).push(torch.zeros(shape))


def test_an_empty_queue_is_refused() -> None:
    with pytest.raises(ValueError, match="positive dim and size"):
        Queue(2, 0)
