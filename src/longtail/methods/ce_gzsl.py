"""Contrastive embedding for generalised zero-shot learning (CE-GZSL, Han et al., CVPR 2021)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome
from longtail.errors import LongtailError
from longtail.losses.contrastive import supervised_contrastive
from longtail.nn import Classifier, Comparator, Embedded, Neck, Network, Streamed
from longtail.nn.neck import checked


class CeGzsl(Method[Labelled]):
    """Train a generator of features for each class, against a critic, and an embedding of both.

    In a round of steps the critic, the embedding and the comparator train `critic_steps` times, and
    then the generator once:

    - critic: WGAN-GP, mean D(fake) - mean D(real) + `penalty` * mean (|gradient| - 1)^2;
    - embedding, on real features: h = ReLU(linear), z = linear(h) of norm 1; a supervised
      contrastive loss of z, and the cross entropy of the comparator's scores F(h, a_c) over the
      seen classes, both at `temperature`;
    - generator: - mean D(fake) + `share` * (the contrastive loss of generated and real rows + the
      cross entropy of generated rows).

    It predicts with the comparator over all classes. Usually a softmax is trained afterwards on h
    of real features of seen and of generated features (`generate`) of unseen classes.

    Args:
        network: from inputs to the features that are generated, such as "vectors".
        vectors: (C, A), what describes each class.
        seen: (C,), whether a class has training images.
        hidden: width of h.
        embedding: width of z.
        generator: width of the generator's hidden layer.
        noise: how many random numbers the generator gets; A unless given.
        critic: width of the critic's hidden layer.
        comparator: width of the comparator's hidden layer.
        critic_steps: steps in a round before that of the generator.
        temperature: of both losses of the embedding.
        share: weight of the embedding's losses for the generator.
        penalty: weight of the gradient penalty.
        init_std: standard deviation of initial weights, as released; None for PyTorch's, which
            suits layers that are much narrower.
        neck: on h, such as `Streams(BatchFormer(hidden))`: both streams enter z and the comparator.

    >>> from longtail.nn import build
    >>> network, vectors = build({"name": "vectors", "size": 8}), torch.rand(4, 5)
    >>> method = CeGzsl(network, vectors, torch.tensor([True, True, True, False]), hidden=16,
    ...                 embedding=4, generator=16, critic=16, comparator=8)
    >>> batch: Labelled = {"image": torch.rand(6, 8), "target": torch.tensor([0, 0, 1, 1, 2, 2]),
    ...                    "position": torch.arange(6)}
    >>> [list(method(batch, Clock(step, 6, 0, 1)).terms) for step in (0, 5)]
    [['critic', 'penalty', 'contrast', 'class'], ['generator', 'contrast', 'class']]
    """

    numbers: Tensor
    position: Tensor

    def __init__(
        self,
        network: Network,
        vectors: Tensor,
        seen: Tensor,
        *,
        hidden: int = 2048,
        embedding: int = 512,
        generator: int = 4096,
        noise: int | None = None,
        critic: int = 4096,
        comparator: int = 2048,
        critic_steps: int = 5,
        temperature: float = 0.1,
        share: float = 0.001,
        penalty: float = 10.0,
        init_std: float | None = 0.02,
        neck: Neck | None = None,
    ) -> None:
        super().__init__()
        if critic_steps < 1 or not temperature > 0:
            raise LongtailError(
                "expected at least one critic step and a positive temperature, got"
                f" {critic_steps} and {temperature}"
            )
        classes, width = vectors.shape
        self.noise = width if noise is None else noise
        self.embed = Embedded(network, [hidden])
        self.project = nn.Linear(hidden, embedding)
        head = Comparator(hidden, classes, width=width, hidden=comparator, scale=1 / temperature)
        head.vectors.copy_(vectors)
        self.head = head
        self.generator = nn.Sequential(
            nn.Linear(self.noise + width, generator),
            nn.LeakyReLU(0.2),
            nn.Linear(generator, network.dim),
            nn.ReLU(),
        )
        # Without a bias at the end, which cancels in the difference of two means.
        self.critic = nn.Sequential(
            nn.Linear(network.dim + width, critic),
            nn.LeakyReLU(0.2),
            nn.Linear(critic, 1, bias=False),
        )
        self.neck = checked(neck)
        for part in (self.embed.layers, self.project, self.head, self.generator, self.critic):
            if init_std is not None:
                part.apply(partial(_initialise, std=init_std))
        # The numbers of the seen classes, and each class's position among them.
        self.register_buffer("numbers", seen.nonzero().flatten(), persistent=False)
        self.register_buffer("position", seen.cumsum(0) - 1, persistent=False)
        self.critic_steps, self.temperature = critic_steps, temperature
        self.share, self.penalty = share, penalty
        self.steps_per_round = critic_steps + 1

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        """The terms of the critic's side or of the generator, by the step."""
        real, target = self.embed.network(batch["image"]), batch["target"]
        if clock.step % self.steps_per_round < self.critic_steps:
            return self._train_critic(real, target)
        return self._train_generator(real, target)

    def generate(self, target: Tensor) -> Tensor:
        """Features (N, network.dim) of these classes (N,), with random noise."""
        vectors = self.head.vectors[target]
        noise = torch.randn(len(vectors), self.noise).to(vectors)
        return self.generator(torch.cat([noise, vectors], 1))  # type: ignore[no-any-return]

    def _train_critic(self, real: Tensor, target: Tensor) -> Outcome:
        vectors = self.head.vectors[target]

        def score(features: Tensor) -> Tensor:
            return self.critic(torch.cat([features, vectors], 1)).squeeze(1)  # type: ignore[no-any-return]

        with torch.no_grad():
            fake = self.generate(target)
        mixed = torch.lerp(fake, real, torch.rand_like(real[:, :1])).requires_grad_()
        (slope,) = torch.autograd.grad(score(mixed).sum(), mixed, create_graph=True)
        contrast, classes = self._embedding_losses(real, target, _call)
        return Outcome(
            {
                "critic": score(fake).mean() - score(real).mean(),
                "penalty": self.penalty * (slope.norm(dim=1) - 1).square().mean(),
                "contrast": contrast,
                "class": classes,
            }
        )

    def _train_generator(self, real: Tensor, target: Tensor) -> Outcome:
        fake = self.generate(target)
        both = torch.cat([fake, self.head.vectors[target]], 1)
        with torch.no_grad():
            others = F.normalize(self.project(self.embed.layers(real)), dim=1)
        contrast, classes = self._embedding_losses(fake, target, _call_detached, others=others)
        return Outcome(
            {
                "generator": -_call_detached(self.critic, both).mean(),
                "contrast": self.share * contrast,
                "class": self.share * classes,
            }
        )

    def _embedding_losses(
        self, features: Tensor, target: Tensor, call: Call, *, others: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The contrastive loss and the cross entropy of features (N, dim) over all streams.

        Args:
            call: applies a module, with gradients for its weights or without.
            others: further unit vectors (N, embedding) of the same classes, to contrast with.
        """
        streamed: Streamed = call(self.neck, call(self.embed.layers, features), target)
        h, rows, (labels,) = streamed.features, streamed.rows, streamed.aligned
        z = F.normalize(call(self.project, h), dim=1)
        # By row: the weighted mean of each stream, in one mean over all rows.
        scores = call(self.head, h, self.head.vectors[self.numbers])
        entropy = F.cross_entropy(scores, self.position[labels], reduction="none")
        if others is not None:
            z, labels = torch.cat([z, others]), torch.cat([labels, target])
            rows_of_z = torch.cat([rows, torch.ones_like(target, dtype=rows.dtype)])
        else:
            rows_of_z = rows
        contrast = supervised_contrastive(z, labels, temperature=self.temperature, rows=rows_of_z)
        return contrast, (rows * entropy).mean()

    def predict(self, image: Tensor) -> Tensor:
        """Scores of the comparator for all classes, without the neck."""
        return self.head(self.embed(image))  # type: ignore[no-any-return]

    def deploy(self) -> Classifier:
        """The embedding and the comparator; they share their weights with this method."""
        return Classifier(self.embed, self.head)


Call = Callable[..., Any]


def _call(module: nn.Module, *inputs: Tensor) -> Any:
    return module(*inputs)


def _call_detached(module: nn.Module, *inputs: Tensor) -> Any:
    """Apply a module so that gradients reach its inputs, but not its weights."""
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    return torch.func.functional_call(module, weights, inputs)


def _initialise(module: nn.Module, *, std: float) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
