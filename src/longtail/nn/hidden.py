"""Change feature maps inside a network during training, without changing the network.

MixStyle and manifold mixup change the feature maps between two stages.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.nn.fast_cnn import FastCNN
from longtail.nn.networks import Backbone, Network, innermost
from longtail.nn.resnet_cifar import CifarResNet
from longtail.nn.vit import Tokens


def stages(network: Network) -> list[nn.Module]:
    """The last module of each stage of a network, in order.

    Their outputs are feature maps (N, C, H, W) of convolutional networks, or tokens (N, T, dim) of
    vision transformers, where each block is a stage. A network of timm, or a custom one, has the
    stages that its `feature_info` lists, as timm defines it: a list of {"module": NAME}.

    >>> from longtail.nn import build
    >>> [len(stages(build(name))) for name in ("fast_cnn", "resnet32", "vit_mini")]
    [3, 3, 6]
    """
    inner = innermost(network)
    body: Any = inner.body if isinstance(inner, Backbone) else inner
    if isinstance(body, FastCNN):
        return list(body.blocks)
    if isinstance(
        body, CifarResNet
    ):  # three stages with the same number of blocks, in one sequence
        blocks = len(body.stages) // 3
        return list(body.stages)[blocks - 1 :: blocks]
    if isinstance(body, Tokens):
        body = body.transformer
    names = [stage["module"] for stage in getattr(body, "feature_info", ())]
    if not names:
        raise LongtailError(
            f"the stages of {network.spec['name']} are unknown: "
            "use fast_cnn, resnet32, a vision transformer or a network of timm, or give the "
            'network an attribute feature_info, such as [{"module": "layer1"}]'
        )
    return [body.get_submodule(name) for name in names]


@contextlib.contextmanager
def after(modules: Sequence[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply `change` to the output of each of these modules while the context is open.

    It uses forward hooks only: the state dict, the spec and the deployed network stay the same. A
    compiled network runs eagerly inside the context, because a compiled graph ignores hooks.

    >>> layer = nn.Identity()
    >>> with after([layer], lambda x: 2 * x):
    ...     inside = layer(torch.ones(1))
    >>> inside.item(), layer(torch.ones(1)).item()
    (2.0, 1.0)
    """
    called: set[nn.Module] = set()

    def hook(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise LongtailError(
                f"the output of {type(module).__name__} must be one tensor, got a "
                f"{type(output).__name__}: choose another module"
            )
        called.add(module)
        return change(output)

    hooks = [module.register_forward_hook(hook) for module in modules]
    # Nothing is compiled unless dynamo was imported, which takes seconds.
    compiled = "torch._dynamo" in sys.modules
    try:
        with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
            yield
    finally:
        for handle in hooks:
            handle.remove()
    if missing := [type(module).__name__ for module in modules if module not in called]:
        raise LongtailError(
            f"{len(missing)} of {len(modules)} modules were not called inside `after` "
            f"({', '.join(missing)}): call the network that they belong to"
        )
