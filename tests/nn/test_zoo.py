import pytest
import torch

from longtail.nn import zoo


def test_defaults_are_what_the_model_was_made_for() -> None:
    assert zoo.defaults("deit_tiny_patch16_224") == {"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def test_a_vit_follows_the_image_size() -> None:
    network = zoo.timm_model("test_vit", 32, patch=4)
    assert network.patch_embed.grid_size == (8, 8)  # type: ignore[union-attr]


def test_errors_of_timm_itself_pass_through() -> None:
    with pytest.raises(RuntimeError, match="Invalid pretrained tag"):
        zoo.timm_model("resnet18.no_such_tag", 32)


def test_pooling_and_dropped_paths_can_be_asked_for() -> None:
    network = zoo.timm_model("test_vit", 32, patch=8, pool="avg_norm", drop_path=0.3)
    assert isinstance(network.fc_norm, torch.nn.LayerNorm)
    assert network.blocks[-1].drop_path1.drop_prob == pytest.approx(0.3)  # type: ignore[index, union-attr]


def test_a_size_that_the_patch_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="got size 30 and patch 4: try 28"):
        zoo.timm_model("test_vit", 30, patch=4)
