import pytest
import torch

from longtail.nn.fast_cnn import FastCNN


def test_it_is_the_documented_architecture_at_32_pixels() -> None:
    network = FastCNN(32)
    shapes: list[tuple[int, ...]] = []
    for block in (network.stem, *network.blocks):
        block.register_forward_hook(
            lambda module, inputs, output: shapes.append(tuple(output.shape[1:]))
        )
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 128)
    assert shapes == [(16, 31, 31), (32, 15, 15), (128, 7, 7), (128, 3, 3)]
    kinds = [type(m).__name__ for m in network.blocks[0].modules() if not list(m.children())]
    assert kinds == ["Conv2d", "MaxPool2d", "BatchNorm2d", "GELU", "Conv2d", "BatchNorm2d", "GELU"]


@pytest.mark.parametrize("size", [1, 8, 9, 16, 64, 97])
def test_it_takes_images_of_any_size(size: int) -> None:
    assert FastCNN(size, width=4)(torch.rand(2, 3, size, size)).shape == (2, 16)


def test_a_border_is_added_to_tiny_images_only() -> None:
    image = torch.rand(1, 3, 8, 8) + 0.5
    wide = FastCNN(8).border(image)
    assert wide.shape == (1, 3, 9, 9)
    assert torch.equal(wide[..., :8, :8], image)
    assert wide.sum() == pytest.approx(image.sum()), "black"
    for size in (9, 32):
        image = torch.rand(1, 3, size, size)
        assert torch.equal(FastCNN(size).border(image), image)
