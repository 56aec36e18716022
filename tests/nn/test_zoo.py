from typing import Any

import pytest
import timm
import torch

from longtail.nn import Teacher, build, zoo
from longtail.nn.vit import Tokens


def test_defaults_are_what_the_model_was_made_for() -> None:
    assert zoo.defaults("deit_tiny_patch16_224") == {
        "size": 224,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }


def test_a_vit_follows_the_image_size() -> None:
    network = zoo.timm_model("test_vit", 32, patch=4)
    assert network.patch_embed.grid_size == (8, 8)  # type: ignore[union-attr]


def test_errors_of_timm_itself_pass_through() -> None:
    with pytest.raises(RuntimeError, match="Invalid pretrained tag"):
        zoo.timm_model("resnet18.no_such_tag", 32)


def test_pooling_and_dropped_paths_can_be_set() -> None:
    network = zoo.timm_model("test_vit", 32, patch=8, pool="avg_norm", drop_path=0.3)
    assert isinstance(network.fc_norm, torch.nn.LayerNorm)
    assert network.blocks[-1].drop_path1.drop_prob == pytest.approx(0.3)  # type: ignore[index, union-attr]


def test_a_size_that_the_patch_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="got size 30 and patch 4: try 28"):
        zoo.timm_model("test_vit", 30, patch=4)


def test_a_distilled_transformer_gives_both_tokens() -> None:
    network = build(
        {"name": "timm:deit_tiny_distilled_patch16_224", "size": 32, "patch": 8, "pool": "tokens"}
    )
    assert (network.dim, network.spec["pool"]) == (384, "tokens")
    assert isinstance(network.body, Tokens)
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 384)


def test_an_image_smaller_than_a_patch_is_refused_with_a_size_that_works() -> None:
    with pytest.raises(ValueError, match="got size 8 and patch 16: try 16"):
        zoo.timm_model("test_vit", 8)


@pytest.mark.parametrize("model", ["test_vit", "resnet18"])
def test_a_model_without_a_distillation_token_is_refused(model: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"{model} has no distillation token: use deit_tiny",
    ):
        zoo.timm_model(model, 32, pool="tokens")


def test_a_pretrained_classifier_brings_its_classes_and_normalisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create: Any = timm.create_model
    monkeypatch.setattr(
        "timm.create_model",
        lambda model, *, pretrained, **more: create(model, pretrained=not pretrained),
    )
    network, names, size = zoo.timm_classifier("resnet18")
    assert names is not None
    assert (len(names), names[0], size) == (1000, "n01440764", 224)
    body: Any = network.eval()[1]  # type: ignore[index]
    image = torch.rand(1, 3, 32, 32)
    mean, std = (
        torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1),
        torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1),
    )
    assert torch.allclose(Teacher(network, size=32)(image), body((image - mean) / std), atol=1e-6)

    def offline(model: str, *, pretrained: bool, **more: Any) -> Any:
        raise OSError("no network here.")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        ValueError, match="cannot load the pretrained weights of resnet18: no network here"
    ):
        zoo.timm_classifier("resnet18")


def test_a_patch_may_be_one_number_and_keywords_that_a_model_lacks_are_named() -> None:
    assert build({"name": "timm:efficientvit_m0", "size": 224}).dim == 192
    with pytest.raises(ValueError, match=r"resnet10t does not support patch: .*patch_size"):
        build({"name": "timm:resnet10t", "size": 64, "patch": 4})


def test_a_transformer_that_is_no_plain_one_is_refused_for_what_it_is() -> None:
    with pytest.raises(
        ValueError,
        match=r"swin_tiny_patch4_window7_224 is not a plain vision transformer",
    ):
        build({"name": "timm:swin_tiny_patch4_window7_224", "size": 224, "pool": "avg"})
