import pytest
import torch

from longtail.nn import Normalize


def test_each_channel_has_its_mean_and_deviation() -> None:
    image = torch.rand(2, 3, 4, 5)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    out = Normalize(mean, std)(image)
    for channel in range(3):
        assert torch.allclose(out[:, channel], (image[:, channel] - mean[channel]) / std[channel])


def test_its_numbers_are_in_no_state_dict_but_follow_the_module() -> None:
    layer = Normalize([0.5], [0.5]).double()
    assert not layer.state_dict()
    assert layer.mean.dtype == torch.float64


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.5, 0.5]), ([0.5], [0.0])])
def test_numbers_that_do_not_fit_are_refused(mean: list[float], std: list[float]) -> None:
    with pytest.raises(ValueError, match="one mean and one positive std"):
        Normalize(mean, std)


def test_pixels_that_are_no_floats_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"expected images as floats in \[0, 1\], got torch.uint8: .* pass image / 255",
    ):
        Normalize([0.5], [0.5])(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))
