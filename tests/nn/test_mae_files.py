import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from longtail.nn import Adjusted, Classifier, Cosine, Linear, Network, build
from longtail.nn.encoders import Weights, encoder_weights, load_encoder, read_weights, write_weights
from longtail.nn.mae import MaskedAutoencoder, initialise, transformer
from longtail.nn.mae_files import load_mae, mae_layout, timm_layout

VIT = {"name": "vit_mini", "size": 16, "patch": 4, "width": 16, "depth": 2, "heads": 2}


def encoder(**more: object) -> Network:
    return build({**VIT, "pool": "avg", **more})


def write(folder: Path, network: Network, *, data: str) -> None:
    write_weights(folder, Weights(folder, timm_layout(network), network.spec, data))


def blocks(prefix: str, width: int, depth: int) -> dict[str, tuple[int, ...]]:
    """Every key and shape of transformer blocks, as the public checkpoints have them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for b in range(depth):
        for norm in ("norm1", "norm2"):
            shapes |= {
                f"{prefix}.{b}.{norm}.weight": (width,),
                f"{prefix}.{b}.{norm}.bias": (width,),
            }
        for name, (out, into) in {
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "mlp.fc1": (4 * width, width),
            "mlp.fc2": (width, 4 * width),
        }.items():
            shapes |= {
                f"{prefix}.{b}.{name}.weight": (out, into),
                f"{prefix}.{b}.{name}.bias": (out,),
            }
    return shapes


def public(
    *,
    width: int = 16,
    depth: int = 2,
    grid: int = 4,
    patch: int = 4,
    decoder: tuple[int, int] | None = (8, 1),
) -> dict[str, tuple[int, ...]]:
    """Every key and shape of a public MAE checkpoint: an encoder, and a decoder unless it was left
    out.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + grid * grid, width),
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "patch_embed.proj.bias": (width,),
        **blocks("blocks", width, depth),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    if decoder is not None:
        wide, deep = decoder
        shapes |= {
            "mask_token": (1, 1, wide),
            "decoder_pos_embed": (1, 1 + grid * grid, wide),
            "decoder_embed.weight": (wide, width),
            "decoder_embed.bias": (wide,),
            **blocks("decoder_blocks", wide, deep),
            "decoder_norm.weight": (wide,),
            "decoder_norm.bias": (wide,),
            "decoder_pred.weight": (patch * patch * 3, wide),
            "decoder_pred.bias": (patch * patch * 3,),
        }
    return shapes


def invented(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_our_keys_and_shapes_are_those_of_the_public_checkpoints() -> None:
    ours = mae_layout(MaskedAutoencoder(encoder(), width=8, depth=1, heads=2))
    assert {name: tuple(tensor.shape) for name, tensor in ours.items()} == public()


def test_the_papers_sizes_have_the_public_keys_and_shapes() -> None:
    with torch.device("meta"):
        network = build({"name": "timm:vit_base_patch16_224", "pool": "avg"})
        ours = MaskedAutoencoder(network).state_dict()
    shapes = {
        name.removeprefix("network.body."): tuple(tensor.shape)
        for name, tensor in ours.items()
        if name.startswith("network.body.")
    }
    assert shapes == public(width=768, depth=12, grid=14, patch=16, decoder=None)
    assert sum(
        torch.Size(shape).numel()
        for shape in public(width=768, depth=12, grid=14, patch=16, decoder=(512, 8)).values()
    ) == sum(tensor.numel() for tensor in ours.values())


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_complete_public_checkpoint_fills_an_autoencoder(tmp_path: Path, suffix: str) -> None:
    tensors, path = invented(public()), tmp_path / f"checkpoint{suffix}"
    if suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(
            {
                "model": tensors,
                "epoch": 799,
                "args": argparse.Namespace(mask_ratio=0.75),
                "scaler": {},
            },
            path,
        )
    method = load_mae(MaskedAutoencoder(encoder(), width=8, depth=1, heads=2), read_weights(path))
    repeated = mae_layout(method)
    assert {name: tensor.tolist() for name, tensor in repeated.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert method(torch.rand(2, 3, 16, 16)).loss.isfinite()


@pytest.mark.parametrize("decoder", [None, (8, 1)])
@pytest.mark.parametrize("wrapper", ["", "module.", "network.body."])
def test_a_public_checkpoint_fills_a_network_for_fine_tuning(
    decoder: tuple[int, int] | None, wrapper: str, tmp_path: Path
) -> None:
    tensors = invented(public(decoder=decoder))
    torch.save(
        {wrapper + name: tensor for name, tensor in tensors.items()}, tmp_path / "weights.pth"
    )
    torch.manual_seed(0)
    network = load_encoder(encoder(pool="avg_norm"), read_weights(tmp_path / "weights.pth"))
    for name, tensor in transformer(network).state_dict().items():
        if name.startswith("fc_norm."):
            assert torch.equal(tensor, torch.full((16,), float(name.endswith("weight")))), (
                "the new norm begins anew"
            )
        else:
            assert torch.equal(tensor, tensors[name]), name


def test_a_fine_tuned_checkpoint_brings_its_norm() -> None:
    shapes = public(decoder=None)
    for name in ("weight", "bias"):
        shapes[f"fc_norm.{name}"] = shapes.pop(f"norm.{name}")
    tensors = invented({**shapes, "head.weight": (7, 16), "head.bias": (7,)})
    network = load_encoder(encoder(pool="avg_norm"), Weights(Path("livt.pth"), tensors))
    assert torch.equal(transformer(network).fc_norm.weight, tensors["fc_norm.weight"])


@pytest.mark.parametrize(("before", "after"), [(128, 224), (224, 384), (32, 16)])
def test_positions_follow_the_resolution(before: int, after: int) -> None:
    """A plane over the grid is a plane on a finer or coarser one, apart from the edges."""
    patch = 16 if before > 100 else 4
    first, second = (
        build({**VIT, "size": size, "patch": patch, "depth": 1}) for size in (before, after)
    )
    old, new = before // patch, after // patch
    plane = torch.arange(float(old)).add(0.5).div(old)
    positions = transformer(first).pos_embed
    with torch.no_grad():
        positions.zero_()
        positions[0, 0] = 7.0
        positions[0, 1:, 0] = plane.repeat_interleave(old)
        positions[0, 1:, 1] = plane.repeat(old)
    load_encoder(second, Weights(Path("run"), timm_layout(first)))
    resized = transformer(second).pos_embed[0]
    wanted = torch.arange(float(new)).add(0.5).div(new)
    inner = slice(new // 4, -(new // 4))
    assert (resized[0] == 7.0).all(), "the class token has no place to interpolate"
    assert torch.allclose(
        resized[1:, 0].view(new, new)[inner, inner],
        wanted[inner, None].expand(-1, new)[:, inner],
        atol=0.02,
    )
    assert torch.allclose(
        resized[1:, 1].view(new, new)[inner, inner],
        wanted[None, inner].expand(new, -1)[inner],
        atol=0.02,
    )


@pytest.mark.parametrize(("before", "after"), [(4, 7), (8, 4)])
def test_positions_are_interpolated_as_timm_does(before: int, after: int) -> None:
    first, second = (
        build({**VIT, "size": 4 * grid, "patch": 4, "depth": 1}) for grid in (before, after)
    )
    with torch.no_grad():
        transformer(first).pos_embed.normal_()
    load_encoder(second, Weights(Path("run"), timm_layout(first)))
    old = transformer(first).pos_embed[:, 1:].unflatten(1, (before, before)).permute(0, 3, 1, 2)
    wanted = (
        F.interpolate(old, size=(after, after), mode="bicubic", antialias=True)
        .permute(0, 2, 3, 1)
        .flatten(1, 2)
    )
    torch.testing.assert_close(transformer(second).pos_embed[:, 1:], wanted)


def test_positions_of_another_width_are_refused_with_the_file() -> None:
    tensors = timm_layout(encoder())
    tensors["pos_embed"] = torch.zeros(1, 17, 64)
    with pytest.raises(
        ValueError, match=r"expected pos_embed of width 16, got shape \(1, 17, 64\) in elsewhere"
    ):
        load_encoder(encoder(), Weights(Path("elsewhere"), tensors))


def test_the_same_resolution_keeps_positions_to_the_bit() -> None:
    first, second = encoder(), encoder()
    load_encoder(second, Weights(Path("run"), timm_layout(first)))
    image = torch.rand(2, 3, 16, 16)
    assert torch.equal(first.eval()(image), second.eval()(image))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"patch": 2}, "patch 2, as vit_mini has here, got patch 4 in"),
        ({"width": 32}, "width 32, as vit_mini has here, got width 16 in"),
        ({"depth": 3}, "depth 3, as vit_mini has here, got depth 2 in"),
        ({"heads": 4}, "heads 4, as vit_mini has here, got heads 2 in"),
    ],
)
def test_another_architecture_is_refused_with_both_numbers(
    more: dict[str, object], named: str, tmp_path: Path
) -> None:
    write(tmp_path / "encoder", encoder(), data="digits-lt")
    with pytest.raises(ValueError, match=named):
        load_encoder(encoder(**more), read_weights(tmp_path))


def test_weights_of_something_else_are_refused() -> None:
    tensors = invented(public(decoder=None))
    with pytest.raises(ValueError, match=r"got 1 unexpected \(dist_token\) and 0 missing"):
        load_encoder(
            encoder(), Weights(Path("deit.pth"), {**tensors, "dist_token": torch.zeros(1, 1, 16)})
        )
    tensors.pop("blocks.1.attn.qkv.bias")
    with pytest.raises(ValueError, match=r"1 missing \(blocks.1.attn.qkv.bias\) in mae.pth"):
        load_encoder(encoder(), Weights(Path("mae.pth"), tensors))
    grey = {**invented(public(decoder=None)), "patch_embed.proj.weight": torch.zeros(16, 1, 4, 4)}
    with pytest.raises(
        ValueError,
        match=(
            r"expected patch_embed.proj.weight of shape \(16, 3, 4, 4\).*got \(16, 1, 4, 4\) in"
            r" grey.pth"
        ),
    ):
        load_encoder(encoder(), Weights(Path("grey.pth"), grey))
    wrong = {**invented(public(decoder=None)), "pos_embed": torch.zeros(1, 12, 16)}
    with pytest.raises(
        ValueError, match=r"square grid and 1 tokens before it, got 12 positions in mae.pth"
    ):
        load_encoder(encoder(), Weights(Path("mae.pth"), wrong))


def test_another_decoder_is_refused() -> None:
    method = MaskedAutoencoder(encoder(), width=8, depth=1, heads=2)
    with pytest.raises(ValueError, match=r"mask_token \(1, 1, 8\) instead of \(1, 1, 12\)"):
        load_mae(method, Weights(Path("mae.pth"), invented(public(decoder=(12, 1)))))
    with pytest.raises(ValueError, match=r"decoder_blocks.1"):
        load_mae(method, Weights(Path("mae.pth"), invented(public(decoder=(8, 2)))))
    with pytest.raises(ValueError, match=r"mask_token \(1, 1, 8\) instead of nothing"):
        load_mae(method, Weights(Path("mae.pth"), invented(public(decoder=None))))


def test_files_that_hold_nothing_of_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is nothing at"):
        read_weights(tmp_path / "nowhere")
    with pytest.raises(
        ValueError, match=r"no trained network at .*: pass the folder of a finished run"
    ):
        read_weights(tmp_path)
    (tmp_path / "torn.pth").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(ValueError, match=r"torn.pth is not a file of weights, or incomplete"):
        read_weights(tmp_path / "torn.pth")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(
        ValueError, match=r"torn.safetensors is not a file of weights, or incomplete"
    ):
        read_weights(tmp_path / "torn.safetensors")
    for text in ("hello", "a list\n", "# words\n", "M\n", ""):
        (tmp_path / "text.pth").write_text(text)
        with pytest.raises(
            ValueError,
            match=r"text.pth is not a file of weights, or incomplete \(\w+.*\): copy it again",
        ):
            read_weights(tmp_path / "text.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    with pytest.raises(ValueError, match="has no state dict"):
        read_weights(tmp_path / "epoch.pth")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="got 0 patch embeddings"):
        load_encoder(encoder(), read_weights(tmp_path / "other.pth"))


class Trap:
    """Unpickled, it would write a file."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("trap-was-sprung"),))


def test_nothing_in_a_checkpoint_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Trap()}, "trap.pth")
    with pytest.raises(ValueError, match=r"trap.pth contains .*is not executed"):
        read_weights(Path("trap.pth"))
    assert not Path("trap-was-sprung").exists()


@pytest.mark.parametrize(
    ("beside", "named"),
    [(np.float64(0.5), r"numpy\.\S+\.scalar"), (Path("run"), r"pathlib\.\S*Path")],
)
def test_a_checkpoint_with_more_than_weights_is_refused_with_the_remedy(
    beside: object, named: str, tmp_path: Path
) -> None:
    tensors = invented(public(decoder=None))
    torch.save({"model": tensors, "beside": beside}, tmp_path / "more.pth")
    with pytest.raises(
        ValueError,
        match=rf'more.pth contains {named}, .*torch.save\({{"model": state_dict}}, path\)',
    ):
        read_weights(tmp_path / "more.pth")
    torch.save({"model": tensors}, tmp_path / "more.pth")
    assert read_weights(tmp_path / "more.pth").tensors.keys() == tensors.keys()


@pytest.mark.parametrize("name", ["encoder", "model"])
def test_a_folder_of_a_run_without_its_spec_is_incomplete(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, encoder(), data="digits-lt")
    (tmp_path / name / "spec.json").unlink()
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(
            ValueError,
            match=rf"{tmp_path / name}/spec.json is missing, so the run is not finished",
        ):
            read_weights(source)


def test_an_encoder_in_a_folder_comes_back(tmp_path: Path) -> None:
    network = initialise(encoder())
    write(tmp_path / "encoder", network, data="digits-lt, 364 images")
    weights = read_weights(tmp_path)
    assert weights.spec == network.spec
    assert weights.patch == 4
    assert (
        json.loads((tmp_path / "encoder" / "spec.json").read_text())["data"]
        == "digits-lt, 364 images"
    )
    file = read_weights(tmp_path / "encoder" / "model.safetensors")
    assert (file.spec, file.data) == (weights.spec, weights.data), "its spec is beside it"
    repeated = load_encoder(encoder(), weights)
    image = torch.rand(2, 3, 16, 16)
    assert torch.equal(repeated.eval()(image), network.eval()(image))


@pytest.mark.parametrize("nested", [True, False])
def test_a_folder_of_timm_is_read_with_its_normalisation(nested: bool, tmp_path: Path) -> None:
    save_file(invented(public(decoder=None)), tmp_path / "model.safetensors")
    known = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
    assert read_weights(tmp_path).statistics["mean"] == [0.485, 0.456, 0.406], "nothing is known"
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "vit", "pretrained_cfg": known} if nested else known)
    )
    for source in (tmp_path, tmp_path / "model.safetensors"):
        assert read_weights(source).statistics == known
    write_weights(tmp_path / "copy", read_weights(tmp_path))
    copy = read_weights(tmp_path / "copy")
    assert copy.statistics == known
    assert copy.tensors.keys() == read_weights(tmp_path).tensors.keys()
    load_encoder(encoder(), copy)


def normalised(network: Network, image: Tensor) -> Tensor:
    mean, std = (torch.tensor(network.spec[name]).view(3, 1, 1) for name in ("mean", "std"))
    return (image - mean) / std


@pytest.mark.parametrize("adjusted", [False, True])
def test_a_classifier_exports_to_timm(adjusted: bool) -> None:
    network, head = encoder(pool="avg_norm"), Linear(16, 5, scale=0.5)
    classifier = (
        Adjusted(network, head, bias=torch.arange(5), temperature=2.0)
        if adjusted
        else Classifier(network, head)
    ).eval()
    model = timm.models.VisionTransformer(
        img_size=16,
        patch_size=4,
        embed_dim=16,
        depth=2,
        num_heads=2,
        num_classes=5,
        global_pool="avg",
    ).eval()
    model.load_state_dict(timm_layout(classifier))
    image = torch.rand(3, 3, 16, 16)
    with torch.no_grad():
        assert torch.allclose(model(normalised(network, image)), classifier(image), atol=1e-6)


def test_an_encoder_exports_to_timm_by_name() -> None:
    network = build({"name": "timm:test_vit", "size": 32, "patch": 8, "pool": "avg_norm"}).eval()
    model = timm.create_model(
        "test_vit", img_size=32, patch_size=8, num_classes=0, global_pool="avg"
    ).eval()
    model.load_state_dict(timm_layout(network))
    image = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(normalised(network, image)), network(image))


def test_an_encoder_before_fine_tuning_has_its_norm_before_pooling() -> None:
    network = build({"name": "timm:test_vit", "size": 32, "patch": 8, "pool": "avg"}).eval()
    model = timm.create_model(
        "test_vit", img_size=32, patch_size=8, num_classes=0, global_pool="avg", fc_norm=False
    ).eval()
    model.load_state_dict(timm_layout(network))
    image = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(normalised(network, image)), network(image))


def test_a_head_that_timm_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="linear heads only, got cosine"):
        timm_layout(Classifier(encoder(), Cosine(16, 5)))


def test_public_checkpoints_are_normalised_as_imagenet_is() -> None:
    known = {"mean": [0.5, 0.5, 0.5], "std": [0.1, 0.1, 0.1]}
    assert Weights(Path("run"), {}, {"name": "vit_mini", **known}).statistics == known
    assert Weights(Path("mae.pth"), {}).statistics["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize("name", ["vit_mini", "fast_vit"])
def test_a_distillation_token_starts_as_the_class_token_of_an_encoder(
    name: str, tmp_path: Path
) -> None:
    spec = {"name": name, "size": 16, "width": 16, "depth": 1, "heads": 2}
    first = build({**spec, "pool": "avg"})
    write_weights(tmp_path, Weights(tmp_path, encoder_weights(first), first.spec))
    theirs = read_weights(tmp_path)
    student = load_encoder(build({**spec, "pool": "tokens"}), theirs)
    loaded = {
        name.removeprefix("body.transformer."): tensor
        for name, tensor in student.state_dict().items()
    }
    token, positions = theirs.tensors["cls_token"], theirs.tensors["pos_embed"]
    assert torch.equal(loaded["cls_token"], token)
    assert torch.equal(loaded["dist_token"], token)
    assert torch.equal(loaded["pos_embed"], torch.cat([positions[:, :1], positions], 1))
    kept = [name for name in theirs.tensors if name != "pos_embed"]
    assert all(torch.equal(loaded[name], theirs.tensors[name]) for name in kept)
