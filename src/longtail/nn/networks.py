"""Networks by name, built from a spec {"name", JSON keywords}, so that files can restore them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from longtail.errors import LongtailError
from longtail.naming import import_function, unknown
from longtail.nn import zoo
from longtail.nn.experts import (
    fast_cnn_experts,
    resnet10_experts,
    resnet32_experts,
    resnet50_experts,
)
from longtail.nn.fast_cnn import fast_cnn
from longtail.nn.fast_vit import fast_vit
from longtail.nn.heads import CosineExperts, Head, Linear, TokenHeads, build_head
from longtail.nn.normalize import Normalize
from longtail.nn.resnet import resnet10
from longtail.nn.resnet_cifar import resnet32
from longtail.nn.vit import vit_mini, vit_tiny

# The command line lists these names by reading this file's text: keep the keys literal.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet32": resnet32,
    "resnet10": resnet10,
    "fast_cnn": fast_cnn,
    "vit_mini": vit_mini,
    "vit_tiny": vit_tiny,
    "fast_vit": fast_vit,
    "resnet32_experts": resnet32_experts,
    "fast_cnn_experts": fast_cnn_experts,
    "resnet10_experts": resnet10_experts,
    "resnet50_experts": resnet50_experts,
}

# CIFAR's statistics, as the long-tailed literature uses them.
DEFAULTS = {"size": 32, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010]}
# ImageNet's, for networks of large images.
LARGE = {"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
FORWARD_SIDE = 256  # pixels up to which a new network is given an image to learn its width


class Network(nn.Module):
    """A module from images in [0, 1] to rows (N, dim), with the spec that rebuilds it."""

    def __init__(self, spec: Mapping[str, Any], dim: int) -> None:
        super().__init__()
        self.spec, self.dim = dict(spec), dim


class Backbone(Network):
    """Normalisation, then a body that returns features (N, dim)."""

    def __init__(self, body: nn.Module, spec: Mapping[str, Any]) -> None:
        features = _features(body.eval(), spec["size"])
        if features.ndim != 2:
            raise LongtailError(
                f"expected features (N, dim) from {spec['name']}, got {tuple(features.shape)}:"
                " use a model with pooling"
            )
        super().__init__(spec, features.shape[1])
        self.normalize = Normalize(spec["mean"], spec["std"])
        self.body = body.train()

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, dim)."""
        return self.body(self.normalize(image))  # type: ignore[no-any-return]


@torch.no_grad()
def _features(body: nn.Module, size: int) -> Tensor:
    """The features of an image of zeros.

    Of a large one only their shape is computed, which takes neither memory nor time, unless the
    body does what cannot be done without values.
    """
    if size > FORWARD_SIDE:
        with (
            suppress(RuntimeError, NotImplementedError, TypeError),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            return body(torch.zeros(1, 3, size, size))  # type: ignore[no-any-return]
    return body(torch.zeros(1, 3, size, size))  # type: ignore[no-any-return]


class Vectors(Network):
    """The identity on feature vectors, for data that has features instead of images.

    With the `backbone` that computed the features it takes images as well: see `join`.

    >>> build({"name": "vectors", "size": 4})(torch.ones(2, 4)).shape
    torch.Size([2, 4])
    """

    def __init__(self, size: int, *, backbone: Network | None = None) -> None:
        joined = {} if backbone is None else {"backbone": backbone.spec}
        super().__init__({"name": "vectors", "size": size, **joined}, size)
        if backbone is not None and backbone.dim != size:
            raise LongtailError(
                f"{backbone.spec['name']} computes {backbone.dim} features, and {size} were"
                " expected: join the network that computed the features"
            )
        self.backbone = backbone

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, size)."""
        if self.backbone is not None and image.ndim == 4:
            return self.backbone(image)  # type: ignore[no-any-return]
        if image.ndim != 2 or image.shape[1] != self.dim:
            raise LongtailError(
                f"the network 'vectors' expects feature vectors (N, {self.dim}), got"
                f" {tuple(image.shape)}"
            )
        return image


class _Unit(nn.Module):
    """Scale rows to length 1."""

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1)


class Embedded(Network):
    """A network followed by fully connected layers.

    Every layer is linear, then `norm`, ReLU and dropout; with `last="linear"` the last one is
    linear alone, and with "unit" its rows are scaled to length 1.

    Args:
        network: from images or vectors to features (N, network.dim).
        dims: the width of each layer.
        norm: "layer" or "batch" normalisation, or "none".
        dropout: the probability that a number is set to 0 in training.
        last: "relu" if the last layer is like the others, "linear" or "unit".

    >>> network = Embedded(build({"name": "vectors", "size": 4}), [8, 3], last="linear")
    >>> network(torch.ones(2, 4)).shape, build(network.spec).dim
    (torch.Size([2, 3]), 3)
    """

    def __init__(
        self,
        network: Network,
        dims: Sequence[int],
        *,
        norm: Literal["none", "layer", "batch"] = "none",
        dropout: float = 0.0,
        last: Literal["relu", "linear", "unit"] = "relu",
    ) -> None:
        if not dims or min(dims) < 1:
            raise LongtailError(f"expected the width of at least one layer, got {list(dims)}")
        spec = {
            "name": "embedded",
            "network": network.spec,
            "dims": list(dims),
            "norm": norm,
            "dropout": dropout,
            "last": last,
        }
        super().__init__(spec, dims[-1])
        self.network = network
        norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
        if norm not in norms:
            raise unknown("norm", norm, norms)
        if last not in ("relu", "linear", "unit"):
            raise unknown("last layer", last, ("relu", "linear", "unit"))
        layers: list[nn.Module] = []
        for number, (width, dim) in enumerate(
            zip([network.dim, *dims[:-1]], dims, strict=True), start=1
        ):
            layers.append(nn.Linear(width, dim))
            if number < len(dims) or last == "relu":
                layers += [norms[norm](dim)] * (norm != "none")
                layers += [nn.ReLU(), *[nn.Dropout(dropout)] * (dropout > 0)]
        self.layers = nn.Sequential(*layers, *[_Unit()] * (last == "unit"))

    def forward(self, image: Tensor) -> Tensor:
        """Features (N, dims[-1])."""
        return self.layers(self.network(image))  # type: ignore[no-any-return]


def innermost(network: nn.Module) -> nn.Module:
    """The network that takes the input, inside of classifiers, layers and joined features.

    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> innermost(Classifier(network, Linear(network.dim, 2))) is network
    True
    """
    if isinstance(network, Classifier | Embedded):
        return innermost(network.network)
    if isinstance(network, Vectors) and network.backbone is not None:
        return innermost(network.backbone)
    return network


def takes_vectors(network: nn.Module) -> bool:
    """Whether the input of a network or classifier is feature vectors, and never images."""
    return isinstance(innermost(network), Vectors)


def vector_size(network: nn.Module) -> int | None:
    """The number of features that a network was trained on; None if it was trained on images."""
    if isinstance(network, Classifier | Embedded):
        return vector_size(network.network)
    return network.dim if isinstance(network, Vectors) else None


def join(network: Network, backbone: Network) -> Network:
    """A network on feature vectors together with the backbone that computed them.

    It takes images, and still features (N, dim). The result is a copy in eval mode.

    >>> head = Classifier(build({"name": "vectors", "size": 32}), Linear(32, 2))
    >>> backbone = build({"name": "fast_cnn", "size": 8, "width": 8}).eval()
    >>> joined, image = join(head, backbone), torch.rand(4, 3, 8, 8)
    >>> torch.equal(joined(image), head(backbone(image)))
    True
    """
    vectors = innermost(network)
    if not isinstance(vectors, Vectors):
        raise LongtailError(
            f"only a network on feature vectors is joined with a backbone, got"
            f" {network.spec['name']}, which takes images"
        )
    place = next(name for name, module in network.named_modules() if module is vectors)
    prefix = f"{place}.backbone." if place else "backbone."
    joined = build(_joined(network.spec, backbone.spec), trust=True)  # both are imported already
    state = {f"{prefix}{name}": value for name, value in backbone.state_dict().items()}
    joined.load_state_dict({**network.state_dict(), **state})
    return joined.eval()


def _joined(spec: Mapping[str, Any], backbone: Mapping[str, Any]) -> dict[str, Any]:
    if spec["name"] == "vectors":
        return {**spec, "backbone": dict(backbone)}
    return {**spec, "network": _joined(spec["network"], backbone)}


def check_head(network: Network, head: Head) -> None:
    """Raise unless the head expects as many features as the network has."""
    if head.spec["dim"] != network.dim:
        raise LongtailError(
            f"{network.spec['name']} has {network.dim} features, but the head expects"
            f" {head.spec['dim']}: build the head with network.dim"
        )


class Classifier(Network):
    """A network and its head, from images in [0, 1] to logits: the form in which it is deployed.

    `confidence` is how to read the logits: a softmax over classes, or, after training with a binary
    loss, a sigmoid of each.

    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> classifier = Classifier(network, Linear(network.dim, 10))
    >>> build(classifier.spec).load_state_dict(classifier.state_dict())
    <All keys matched successfully>
    """

    def __init__(
        self, network: Network, head: Head, *, confidence: Literal["softmax", "sigmoid"] = "softmax"
    ) -> None:
        if not isinstance(head, Head):
            raise LongtailError(
                f"{type(head).__name__} is no head of longtail.nn and has no spec: use one such as"
                " Linear or Cosine"
            )
        if confidence not in ("softmax", "sigmoid"):
            raise LongtailError(
                f"confidence must be 'softmax' or 'sigmoid', got {confidence!r}: this also"
                " holds for"
                " the attribute of a loss"
            )
        check_head(network, head)
        super().__init__(
            {"name": "classifier", "network": network.spec, "head": head.spec}, head.spec["classes"]
        )
        self.network, self.head, self.confidence = network, head, confidence
        if confidence != "softmax":
            self.spec["confidence"] = confidence

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self.head(self.network(image))  # type: ignore[no-any-return]

    def heads(self, image: Tensor) -> dict[str, Tensor]:
        """Logits as "logits" and, if the head has several parts, the logits of each by name."""
        features = self.network(image)
        named = (
            self.head.named(features) if isinstance(self.head, CosineExperts | TokenHeads) else {}
        )
        return {"logits": self.head(features), **named}


class Adjusted(Classifier):
    """A classifier with logits adjusted on validation images: (logits - bias) / temperature.

    Every part of its head is adjusted in the same way, so that a prediction that is their mean
    still is. Both are in its state, not in its spec. They are chosen for a softmax over classes, so
    `confidence` is "softmax", whatever the loss was.

    >>> network, bias = build({"name": "fast_cnn", "size": 8}), torch.tensor([1.0, -1.0])
    >>> head, image = Linear(network.dim, 2), torch.rand(1, 3, 8, 8)
    >>> adjusted = Adjusted(network, head, bias=bias, temperature=2.0).eval()
    >>> torch.equal(adjusted(image), (Classifier(network, head)(image) - bias) / 2)
    True
    """

    bias: Tensor
    temperature: Tensor

    def __init__(
        self, network: Network, head: Head, *, bias: Tensor | None = None, temperature: float = 1.0
    ) -> None:
        super().__init__(network, head)
        self.spec["name"] = "adjusted"
        self.register_buffer("bias", torch.zeros(self.dim) if bias is None else bias.float())
        self.register_buffer("temperature", torch.tensor(float(temperature)))

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, classes)."""
        return self._adjusted(super().forward(image))

    def heads(self, image: Tensor) -> dict[str, Tensor]:
        """Logits as "logits" and, if the head has several parts, the logits of each by name."""
        return {name: self._adjusted(logits) for name, logits in super().heads(image).items()}

    def _adjusted(self, logits: Tensor) -> Tensor:
        return (logits.float() - self.bias) / self.temperature


def linear_parts(network: Classifier) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each linear part of a classifier's head, whose mean is the prediction.

    Empty if there are none.

    Scale, shift and temperature are included.

    >>> network = build({"name": "fast_cnn", "size": 8, "width": 8})
    >>> head = Linear(network.dim, 2, scale=0.5)
    >>> [(weight, bias)] = linear_parts(Adjusted(network, head, temperature=2.0))
    >>> weight.shape, bias.shape
    (torch.Size([2, 32]), torch.Size([2]))
    """
    head = network.head
    parts = (
        [head]
        if isinstance(head, Linear)
        else [head.cls, head.dist]
        if isinstance(head, TokenHeads) and "answer" not in head.spec
        else []
    )
    shift, temperature = (
        (network.bias, network.temperature)
        if isinstance(network, Adjusted)
        else (torch.tensor(0.0), torch.tensor(1.0))
    )
    result = []
    for part in parts:
        bias = torch.zeros(part.out_features) if part.bias is None else part.bias
        result.append(
            (part.scale * part.weight / temperature, (part.scale * bias - shift) / temperature)
        )
    return result


def input_spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of the network that takes the input, inside of classifiers and layers.

    >>> input_spec({"name": "classifier", "network": {"name": "resnet32", "size": 32}})
    {'name': 'resnet32', 'size': 32}
    """
    inner = spec.get("backbone", spec.get("network"))
    return spec if inner is None else input_spec(inner)


def size_of(spec: Mapping[str, Any]) -> int:
    """The image size that a network was built for; for a classifier, that of its backbone.

    For a network on feature vectors it is their number, or the image size of the joined backbone.

    >>> size_of({"name": "classifier", "network": {"name": "resnet32", "size": 32}})
    32
    """
    return int(input_spec(spec)["size"])


def build(spec: Mapping[str, Any] | str, *, trust: bool = False) -> Network:
    """Build a network from its spec: {"name": NAME, **keywords}, or the name alone.

    The name is one of `NETWORKS`, "timm:NAME", or "package.module:function" for a custom network:
    `function(size, **keywords)` returns a module from normalised images (N, 3, size, size) to
    features (N, dim). "vectors" takes features (N, size) instead of images, and images as well if
    it has the spec of a backbone. An "embedded" network has the spec of the network before its
    layers. A "classifier" has specs of its network and head; an "adjusted" one also has a bias and
    a temperature in its state.

    Every network takes `size` (the side of its images), `mean` and `std`. The network's `spec`
    names every keyword, defaults included; it describes the architecture, so `pretrained` is false
    in it: weights come from a state dict.

    Args:
        spec: a name, or a mapping with "name" and JSON values.
        trust: whether to import the code of a custom network. A spec from a file may name any
            function, so files are read with False by default.

    >>> network = build("resnet32")  # or {"name": "resnet32", "size": 32, ...}
    >>> network.dim, network(torch.zeros(2, 3, 32, 32)).shape
    (64, torch.Size([2, 64]))
    >>> build({"name": "resnet23"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    longtail.errors.LongtailError: unknown network 'resnet23': did you mean resnet32 or ...?...
    """
    keywords: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = str(keywords.pop("name", None))
    if name in ("classifier", "adjusted"):
        network = build(keywords["network"], trust=trust)
        head = build_head(keywords["head"])
        return (
            Adjusted(network, head)
            if name == "adjusted"
            else Classifier(network, head, confidence=keywords.get("confidence", "softmax"))
        )
    if name == "embedded":
        inner = build(keywords.pop("network"), trust=trust)
        return Embedded(inner, keywords.pop("dims"), **keywords)
    if name == "vectors":
        backbone = keywords.get("backbone")
        return Vectors(
            int(keywords["size"]),
            backbone=None if backbone is None else build(backbone, trust=trust),
        )
    if name in NETWORKS:
        large = name.startswith(("resnet10", "resnet50"))
        builder, defaults = NETWORKS[name], LARGE if large else DEFAULTS
    elif name.startswith("timm:"):
        model = name.removeprefix("timm:")
        builder, defaults = partial(zoo.timm_model, model), zoo.defaults(model)
    elif is_custom(name):
        return _build_custom(name, keywords, trust=trust)
    else:
        raise unknown(
            "network", name, NETWORKS, more=", timm:NAME, vectors, package.module:function"
        )
    builder_defaults = {
        key: p.default
        for key, p in inspect.signature(builder).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    if unexpected := [key for key in keywords if key not in {**defaults, **builder_defaults}]:
        raise _unexpected(name, unexpected, known={**defaults, **builder_defaults})
    full = {**defaults, **builder_defaults, **keywords}
    body = builder(full["size"], **{key: full[key] for key in builder_defaults})
    architecture = {"pretrained": False} if "pretrained" in builder_defaults else {}
    return Backbone(body, {"name": name, **full, **architecture})


def _unexpected(name: str, keywords: Sequence[str], *, known: Iterable[str]) -> LongtailError:
    hint = "; vision transformers have them, such as vit_mini, vit_tiny and those of timm"
    return LongtailError(
        f"{name} has no keyword {', '.join(keywords)}: known are {', '.join(known)}"
        + (hint if "pool" in keywords else "")
    )


def is_custom(name: object) -> bool:
    """Whether a network's name is that of a custom function, "package.module:function".

    >>> [is_custom(name) for name in ("resnet32", "timm:resnet18", "mine.networks:small")]
    [False, False, True]
    """
    return (
        isinstance(name, str)
        and re.fullmatch(r"[\w.]+:\w+", name) is not None
        and not name.startswith("timm:")
    )


def _build_custom(name: str, keywords: Mapping[str, Any], *, trust: bool) -> Backbone:
    """Import a function and call it; nothing is imported without trust."""
    if not trust:
        raise LongtailError(
            f"the network {name} is code outside longtail, and loading it would run that code: if"
            " you trust it, pass --trust, or trust=True in Python"
        )
    builder = import_function(name)
    parameters = inspect.signature(builder).parameters
    if "size" not in parameters:
        raise LongtailError(
            f"a network function needs the parameter size, the side of the images, got {name}"
            f"({', '.join(parameters)})"
        )
    named = {key: p for key, p in parameters.items() if key != "size"}
    free = any(p.kind is p.VAR_KEYWORD for p in named.values())
    defaults = {key: p.default for key, p in named.items() if p.default is not p.empty}
    common = {key: value for key, value in DEFAULTS.items() if key not in named}
    given = {key: value for key, value in keywords.items() if key not in common}
    if unexpected := [key for key in given if key not in named and not free]:
        raise _unexpected(name, unexpected, known={**common, **named})
    required = [
        p.name for p in named.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]
    if missing := [key for key in required if key not in given]:
        raise LongtailError(
            f"{name} needs the keyword {', '.join(missing)}: pass it, or give it a default"
        )
    full = {**DEFAULTS, **defaults, **keywords}
    try:
        full = json.loads(json.dumps(full))
    except TypeError as error:
        raise LongtailError(
            f"the keywords of {name} must be JSON values (numbers, strings, lists): {error}"
        ) from error
    body = builder(size=full["size"], **{key: full[key] for key in {**defaults, **given}})
    if not isinstance(body, nn.Module):
        raise LongtailError(f"{name} must return a torch module, got a {type(body).__name__}")
    return Backbone(body, {"name": name, **full})
