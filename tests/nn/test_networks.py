import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longtail.errors import LongtailError
from longtail.nn import (
    NETWORKS,
    Adjusted,
    Classifier,
    Cosine,
    CosineExperts,
    Embedded,
    Linear,
    Network,
    build,
    join,
    networks,
)

SPECS: list[dict[str, Any]] = [
    {"name": "resnet32", "size": 16, "width": 4},
    {"name": "fast_cnn", "size": 8, "width": 8},
    {"name": "fast_cnn", "size": 64, "width": 8, "mean": [0.5, 0.5, 0.5], "std": [0.3, 0.3, 0.3]},
    {"name": "vit_mini", "size": 16, "width": 16, "depth": 2},
    {"name": "resnet32_experts", "size": 16, "width": 4, "experts": 2},
    {"name": "fast_cnn_experts", "size": 8, "width": 8, "slim": 0.5},
    {"name": "vit_tiny", "size": 16, "patch": 8, "width": 12, "depth": 2},
    {"name": "timm:test_vit", "size": 32, "patch": 8},
    {"name": "timm:resnet10t", "size": 32},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['name']}-{spec['size']}")
def test_a_network_comes_back_from_its_spec_as_json(spec: dict[str, Any]) -> None:
    network = build(spec)
    repeated = build(json.loads(json.dumps(network.spec)))
    repeated.load_state_dict(network.state_dict())
    image = torch.rand(2, 3, spec["size"], spec["size"])
    assert repeated.spec == network.spec
    assert spec.items() <= network.spec.items()
    assert torch.equal(network.eval()(image), repeated.eval()(image))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['name']}-{spec['size']}")
def test_features_have_dim_columns_and_reach_every_parameter(spec: dict[str, Any]) -> None:
    network = build(spec)
    assert network.training
    features = network(torch.rand(3, 3, spec["size"], spec["size"]))
    assert features.shape == (3, network.dim)
    features.square().sum().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("name", "parameters", "dim"),
    [
        ("resnet32", 463_504, 64),
        ("fast_cnn", 494_416, 128),
        ("vit_mini", 1_204_608, 128),
        ("vit_tiny", 5_360_832, 192),
    ],
)
def test_standard_sizes(name: str, parameters: int, dim: int) -> None:
    network = build({"name": name})
    assert (sum(p.numel() for p in network.parameters()), network.dim) == (parameters, dim)


def test_names_can_be_read_without_importing() -> None:
    tree = ast.parse(inspect.getsource(networks))
    (literal,) = [
        n.value
        for n in tree.body
        if isinstance(n, ast.AnnAssign)
        and isinstance(n.target, ast.Name)
        and n.target.id == "NETWORKS"
    ]
    assert isinstance(literal, ast.Dict)
    assert [key.value for key in literal.keys if isinstance(key, ast.Constant)] == list(NETWORKS)


def test_a_timm_network_takes_its_statistics_from_timm() -> None:
    assert build({"name": "timm:test_vit", "size": 32}).spec["mean"] == [0.5, 0.5, 0.5]
    assert build({"name": "timm:resnet10t", "size": 32}).spec["mean"] == [0.485, 0.456, 0.406]


def test_a_pretrained_network_is_rebuilt_without_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    requested: list[bool] = []

    def create(model: str, *, pretrained: bool, **keywords: Any) -> nn.Module:
        requested.append(pretrained)
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

    monkeypatch.setattr(timm, "create_model", create)
    build(build({"name": "timm:resnet10t", "pretrained": True}).spec)
    assert requested == [True, False]


def test_missing_pretrained_weights_are_reported() -> None:
    with pytest.raises(
        ValueError,
        match=r"cannot load the pretrained weights of mixer_s32_224: No .*--weights random",
    ):
        build({"name": "timm:mixer_s32_224", "pretrained": True})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"name": "fastcnn"},
            r"unknown network 'fastcnn': did you mean fast_cnn.*Known: .*resnet32, .*timm:NAME",
        ),
        ({"size": 32}, "unknown network 'None'"),
        ({"name": "timm:resnett18"}, "no network 'resnett18': the closest are .*'resnet18'"),
        (
            {"name": "resnet32", "depth": 20},
            "resnet32 has no keyword depth: known are size, mean, std, width",
        ),
        ({"name": "vit_mini", "size": 30, "patch": 4}, "got size 30 and patch 4"),
        ({"name": "vit_mini", "width": 30}, "got width 30 and heads 4"),
        (
            {"name": "classifier", "network": {"name": "resnet32"}, "head": {"name": "lineer"}},
            "unknown head 'lineer': did you mean linear",
        ),
    ],
)
def test_bad_specs_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(spec)


def test_a_model_that_does_not_pool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    monkeypatch.setattr(timm, "create_model", lambda *args, **keywords: nn.Identity())
    with pytest.raises(
        ValueError, match=r"expected features \(N, dim\) from timm:resnet10t, got \(1, 3, 8, 8\)"
    ):
        build({"name": "timm:resnet10t", "size": 8})


@pytest.mark.parametrize(
    "head",
    [Linear(32, 5, bias=False, scale=0.25), Cosine(32, 5, scale=16.0)],
    ids=["linear", "cosine"],
)
def test_a_classifier_comes_back_with_the_same_keys(head: Linear | Cosine) -> None:
    classifier = Classifier(build(SPECS[1]), head)
    repeated = build(json.loads(json.dumps(classifier.spec)))
    assert list(repeated.state_dict()) == list(classifier.state_dict())
    repeated.load_state_dict(classifier.state_dict())
    image = torch.rand(2, 3, 8, 8)
    assert torch.equal(classifier.eval()(image), repeated.eval()(image))
    assert repeated.dim == 5


def test_an_adjusted_classifier_comes_back_with_its_numbers() -> None:
    adjusted = Adjusted(build(SPECS[1]), Linear(32, 5), bias=torch.arange(5), temperature=2.5)
    repeated = build(json.loads(json.dumps(adjusted.spec)))
    assert isinstance(repeated, Adjusted)
    image = torch.rand(2, 3, 8, 8)
    assert not torch.equal(repeated.eval()(image), adjusted.eval()(image))
    repeated.load_state_dict(adjusted.state_dict())
    assert torch.equal(repeated(image), adjusted(image))
    assert torch.equal(
        adjusted(image),
        (Classifier(adjusted.network, adjusted.head)(image) - torch.arange(5)) / 2.5,
    )
    assert sum(p.numel() for p in adjusted.parameters()) == sum(
        p.numel() for p in Classifier(adjusted.network, adjusted.head).parameters()
    )


def test_every_part_of_a_head_is_adjusted_and_their_mean_is_the_answer() -> None:
    network = build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": 2})
    adjusted = Adjusted(
        network, CosineExperts(network.dim, 5, experts=2), bias=torch.randn(5), temperature=0.5
    ).eval()
    image = torch.rand(2, 3, 8, 8)
    heads = adjusted.heads(image)
    assert torch.allclose((heads["expert1"] + heads["expert2"]) / 2, heads["logits"], atol=1e-4)
    assert torch.equal(heads["logits"], adjusted(image))


CUSTOM = """
from torch import nn

def plain(size, width=4, *, depth: int = 1):
    layers = [nn.Linear(3 * size * size, width)]
    layers += [nn.Linear(width, width) for _ in range(depth - 1)]
    return nn.Sequential(nn.Flatten(), *layers)

def free(size, **keywords):
    return plain(size, **keywords)

def needy(size, *, width):
    return plain(size, width)

def sizeless(width=4):
    return plain(8, width)

def odd(size, *, activation=nn.ReLU):
    return plain(size)

def nothing(size):
    return None

constant = 3


class Branching(nn.Module):
    def forward(self, image):
        return image[:, :2].mean((2, 3)) if image.mean().item() < 1 else image


def branching(size):
    return Branching()
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"custom_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_custom_network_is_built_from_its_spec(custom: str) -> None:
    network = build({"name": f"{custom}:plain", "size": 8, "depth": 2}, trust=True)
    assert network.spec == {
        "name": f"{custom}:plain",
        "size": 8,
        "mean": networks.DEFAULTS["mean"],
        "std": networks.DEFAULTS["std"],
        "width": 4,
        "depth": 2,
    }
    repeated = build(json.loads(json.dumps(network.spec)), trust=True)
    repeated.load_state_dict(network.state_dict())
    image = torch.rand(2, 3, 8, 8)
    assert torch.equal(repeated(image), network(image))
    classifier = Classifier(network, Linear(network.dim, 3))
    assert build(classifier.spec, trust=True)(image).shape == (2, 3)
    assert build({"name": f"{custom}:free", "size": 8, "width": 5}, trust=True).dim == 5


def test_a_custom_network_is_not_imported_without_trust(custom: str) -> None:
    network = build({"name": f"{custom}:plain", "size": 8}, trust=True)
    for spec in (network.spec, Classifier(network, Linear(network.dim, 3)).spec):
        sys.modules.pop(custom, None)
        with pytest.raises(ValueError, match=r"code outside longtail.*trust=True"):
            build(spec)
        assert custom not in sys.modules


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("plain", {"widht": 3}, "has no keyword widht: known are size, mean, std, width, depth"),
        ("needy", {}, "needs the keyword width"),
        ("sizeless", {}, "needs the parameter size"),
        ("odd", {}, "must be JSON values"),
        ("nothing", {}, "must return a torch module, got a NoneType"),
        ("constant", {}, "expected a function, got .* a int"),
        ("missing", {}, "cannot import"),
    ],
)
def test_what_is_no_custom_network_is_refused(
    custom: str, name: str, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build({"name": f"{custom}:{name}", **keywords}, trust=True)


def test_a_missing_module_is_reported() -> None:
    with pytest.raises(
        ValueError, match=r"No module named 'not_here'.*Run the command from the folder"
    ):
        build("not_here:network", trust=True)


def test_layers_on_a_network_equal_the_same_by_hand() -> None:
    network = Embedded(build({"name": "vectors", "size": 6}), [5, 4], norm="layer", last="linear")
    first, norm, _, second = network.layers
    rows = torch.randn(3, 6)
    expected = second(torch.relu(norm(first(rows))))
    assert torch.equal(network(rows), expected)
    repeated = build(json.loads(json.dumps(network.spec)))
    repeated.load_state_dict(network.state_dict())
    assert torch.equal(repeated(rows), expected)
    assert repeated.dim == 4
    unit = Embedded(build({"name": "vectors", "size": 6}), [5], last="unit")(rows)
    assert torch.allclose(unit.norm(dim=1), torch.ones(3))
    assert networks.takes_vectors(repeated)
    assert networks.size_of(repeated.spec) == 6


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dims": []}, "at least one layer"),
        ({"dims": [4], "norm": "group"}, "unknown norm 'group'"),
        ({"dims": [4], "last": "tanh"}, "unknown last layer 'tanh'"),
    ],
)
def test_layers_that_do_not_exist_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build({"name": "embedded", "network": {"name": "vectors", "size": 6}, **keywords})


def vectors_and_backbone() -> tuple[Network, Network]:
    backbone = build({"name": "fast_cnn", "size": 8, "width": 8})
    backbone(torch.rand(4, 3, 8, 8))  # moves the statistics of batch norm
    hidden = Embedded(build({"name": "vectors", "size": 32}), [5], norm="batch")
    return Adjusted(hidden, Linear(5, 2), bias=torch.tensor([1.0, 2.0])), backbone.eval()


def test_a_joined_network_takes_images_and_features() -> None:
    classifier, backbone = vectors_and_backbone()
    joined, image = join(classifier.eval(), backbone), torch.rand(3, 3, 8, 8)
    expected = classifier(backbone(image))
    assert torch.equal(joined(image), expected)
    assert torch.equal(joined(backbone(image)), expected)
    rebuilt = build(json.loads(json.dumps(joined.spec)))
    rebuilt.load_state_dict(joined.state_dict())
    assert torch.equal(rebuilt.eval()(image), expected)
    assert networks.size_of(joined.spec) == 8
    assert networks.takes_vectors(classifier)
    assert not networks.takes_vectors(joined)


def test_only_vectors_of_the_right_width_are_joined() -> None:
    classifier, backbone = vectors_and_backbone()
    with pytest.raises(LongtailError, match="takes images"):
        join(backbone, backbone)
    with pytest.raises(LongtailError, match="computes 16 features, and 32 were expected"):
        join(classifier, build({"name": "fast_cnn", "size": 8, "width": 4}))
    with pytest.raises(LongtailError, match="feature vectors"):
        classifier(torch.rand(2, 3, 8, 8))


def test_a_network_for_large_images_is_built_without_a_forward_pass() -> None:
    network = build({"name": "fast_cnn", "size": 40_000})  # such an image takes 19 GB
    assert network.dim == build({"name": "fast_cnn", "size": 32}).dim
    assert all(
        type(tensor) in (nn.Parameter, torch.Tensor)
        for tensor in network.state_dict(keep_vars=True).values()
    )


def test_a_network_whose_shapes_depend_on_values_gets_a_large_image(custom: str) -> None:
    network = build({"name": f"{custom}:branching", "size": 300}, trust=True)
    assert network.dim == 2
