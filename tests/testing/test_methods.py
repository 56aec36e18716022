"""Our methods keep the contract; a new one joins by one entry in CASES. Each check catches its
fault.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.core import Clock, Labelled, Method, Outcome, Schedule
from longtail.losses import (
    LADE,
    LDAM,
    BalancedBCE,
    CrossEntropy,
    Diversity,
    InfluenceBalanced,
    LogitAdjusted,
    ParametricContrastive,
    class_balanced_weights,
    expert_temperature,
)
from longtail.losses.domains import coral, irm, vrex
from longtail.methods import (
    MDD,
    Classify,
    ClassifyParts,
    DistillTokens,
    MaskedAutoencode,
    MatchOpenPairs,
    MatchPairs,
    MoCo,
    MoCo3,
    NearestNeighbours,
    PaCo,
    Probe,
    Ride,
)
from longtail.methods.distill_tokens import Release
from longtail.methods.domains import AcrossDomains
from longtail.nn import (
    BatchFormer,
    Classifier,
    Cosine,
    CosineExperts,
    Embedded,
    Frozen,
    Linear,
    Neck,
    Network,
    Queue,
    Streams,
    Teacher,
    TokenHeads,
    build,
)
from longtail.nn.mae import MaskedAutoencoder, initialise
from longtail.nn.mixstyle import MixStyle
from longtail.nn.networks import Vectors
from longtail.nn.pairs import ComposedPairs, GraphPairs
from longtail.schedules import Deferred, Sigmoid
from longtail.testing import check_method
from longtail.testing.methods import (
    CLOCKS,
    Batch,
    check_deployment,
    check_first_order,
    check_forward,
    check_frozen_parts,
    check_gradients,
    check_predictions,
)

COUNTS = torch.tensor([40, 20, 9, 4, 2])


def hard() -> Batch:
    generator = torch.Generator().manual_seed(5)
    image = torch.rand(10, 3, 8, 8, generator=generator, dtype=torch.float64)
    return {
        "image": image,
        "target": torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 3, 4]),
        "position": torch.arange(10),
    }


def soft() -> Batch:
    target = nn.functional.one_hot(hard()["target"], 5).double()
    return {**hard(), "target": 0.7 * target + 0.3 * target.roll(1, 0)}


def domains() -> Batch:
    return {**hard(), "domain": torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])}


def views() -> Batch:
    batch = hard()
    return {
        "view1": batch["image"],
        "view2": batch["image"].flip(-1),
        "target": batch["target"],
        "position": batch["position"],
    }


def taught() -> Batch:
    return {**hard(), "teacher_target": torch.tensor([0, 0, 1, 4, 1, 2, 1, 2, 3, 0])}


def taught_softly() -> Batch:
    return {**soft(), "teacher_target": taught()["teacher_target"]}


@dataclass(frozen=True)
class Case:
    name: str
    method: Callable[[], Method[Any]]
    batches: tuple[Callable[[], Batch], ...] = (hard, soft)
    # Modules without trainable parameters that `after_step` moves: momentum copies
    moving: tuple[str, ...] = ()
    # Without its stop-gradients, where first order would not be all
    first_order: Callable[[], Method[Any]] | None = None


def cnn() -> Network:
    return build({"name": "fast_cnn", "size": 8, "width": 8})


def vit(**more: object) -> Network:
    return build({"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 2, **more})


def adapted() -> Batch:
    generator = torch.Generator().manual_seed(6)
    image = torch.rand(8, 3, 8, 8, generator=generator, dtype=torch.float64)
    return {**hard(), "unlabelled_image": image}


def mdd(reversal: Schedule, neck: Neck | None = None, *, on: str = "bottleneck") -> MDD:
    bottleneck = Embedded(cnn(), [16], norm="batch", dropout=0.5)
    adversary = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5))
    hidden = Embedded(bottleneck, [12], dropout=0.5)
    return MDD(hidden, Linear(12, 5), adversary, reversal=reversal, neck=neck, neck_on=on)


def not_reversed(clock: Clock) -> float:
    return -1.0  # a factor of -1 gives the gradient of the loss


def deferred() -> Deferred:
    return Deferred(class_balanced_weights(COUNTS), start=0.8)


def ride(neck: Neck | None = None, *, teacher: Frozen | None = None) -> Ride:
    network = build({"name": "fast_cnn_experts", "size": 8, "width": 8, "experts": 2})
    return Ride(
        network,
        CosineExperts(network.dim, 5, experts=2),
        LDAM(COUNTS, max_margin=15.0, scale=1.0),
        diversity=Diversity(-0.45),
        neck=neck,
        weights=deferred(),
        temperature=Deferred(expert_temperature(COUNTS), start=0.8),
        teacher=teacher,
    )


def across(**keywords: Any) -> AcrossDomains:
    return AcrossDomains(cnn(), Linear(32, 5), **keywords)


def paco(neck: Neck | None = None) -> PaCo:
    return PaCo(
        cnn(),
        Linear(32, 5),
        ParametricContrastive(COUNTS, temperature=0.2),
        dim=8,
        size=24,
        neck=neck,
    )


PAIRS = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 2], [2, 2], [2, 0], [1, 1]])
SEEN = torch.arange(7) < 5  # the classes of `hard`


def graph(dim: int, *, learned: bool = False) -> GraphPairs:
    words = torch.randn(3, 6), torch.randn(3, 6)
    return GraphPairs(PAIRS, *words, dim=dim, hidden=12, dropout=0.0, learned=learned)


def composed(dim: int) -> ComposedPairs:
    return ComposedPairs(PAIRS, torch.randn(3, 6), torch.randn(3, 6), dim=dim)


def moco(neck: Neck | None = None, **more: Any) -> MoCo:
    return MoCo(cnn(), dim=8, size=24, norm_splits=2, neck=neck, **more)


def moco3(network: Network, neck: Neck | None = None, **more: Any) -> MoCo3:
    return MoCo3(network, dim=8, hidden=16, temperature=0.5, neck=neck, **more)


def neighbours() -> NearestNeighbours:
    return NearestNeighbours(torch.rand(9, 32), torch.arange(9) % 5, classes=5, neighbours=3)


CASES = [
    Case(
        "MDD",
        lambda: mdd(Sigmoid(0.1, speed=20.0)),
        (adapted,),
        first_order=lambda: mdd(not_reversed),
    ),
    Case(
        "MDD with BatchFormer",
        lambda: mdd(Sigmoid(0.1, speed=20.0), Streams(BatchFormer(16))),
        (adapted,),
        first_order=lambda: mdd(not_reversed, Streams(BatchFormer(16))),
    ),
    Case(
        "MDD with BatchFormer before the bottleneck",
        lambda: mdd(Sigmoid(0.1, speed=20.0), Streams(BatchFormer(32)), on="backbone"),
        (adapted,),
        first_order=lambda: mdd(not_reversed, Streams(BatchFormer(32)), on="backbone"),
    ),
    Case(
        "cross entropy",
        lambda: Classify(cnn(), Linear(32, 5, bias=False, scale=0.25), CrossEntropy(smoothing=0.1)),
    ),
    Case(
        "balanced softmax, resnet32",
        lambda: Classify(
            build({"name": "resnet32", "size": 8, "width": 4}), Linear(16, 5), LogitAdjusted(COUNTS)
        ),
    ),
    Case(
        "LDAM, deferred weights",
        lambda: Classify(cnn(), Cosine(32, 5), LDAM(COUNTS), weights=deferred()),
    ),
    Case("balanced BCE, ViT", lambda: Classify(vit(), Linear(16, 5), BalancedBCE(COUNTS))),
    Case(
        "BatchFormer",
        lambda: Classify(
            cnn(),
            Linear(32, 5),
            LogitAdjusted(COUNTS),
            neck=Streams(BatchFormer(32)),
            weights=deferred(),
        ),
    ),
    Case(
        "BatchFormer, no shared classifier, ViT",
        lambda: Classify(
            vit(),
            Linear(16, 5),
            CrossEntropy(),
            neck=Streams(BatchFormer(16, layers=2), plain_weight=0.0, batchformer_weight=1.0),
        ),
    ),
    Case(
        "BatchFormer, loss scale only",
        lambda: Classify(
            cnn(),
            Linear(32, 5),
            CrossEntropy(),
            neck=Streams(BatchFormer(32), plain_weight=1.5, batchformer_weight=0.0),
        ),
    ),
    Case(
        "BatchFormer, frozen, self only",
        lambda: Classify(
            cnn(),
            Linear(32, 5),
            CrossEntropy(),
            neck=Streams(BatchFormer(32, attention="self").requires_grad_(False)),
        ),
    ),
    Case("LADE, ViT", lambda: Classify(vit(), Linear(16, 5), LADE(COUNTS))),
    Case(
        "influence balanced, dropped paths",
        lambda: Classify(
            vit(pool="avg_norm", drop_path=0.2), Linear(16, 5), InfluenceBalanced(COUNTS)
        ),
    ),
    Case(
        "masked autoencoder",
        lambda: MaskedAutoencode(
            MaskedAutoencoder(initialise(vit(pool="avg")), width=8, depth=1, heads=2)
        ),
        (hard,),
    ),
    Case("RIDE", ride),
    Case(
        "RIDE, BatchFormer, teacher",
        lambda: ride(
            Streams(BatchFormer(24, heads=1)),
            teacher=Teacher(Classifier(cnn(), Linear(32, 5)), size=8),
        ),
    ),
    Case("PaCo", paco, batches=(views,), moving=("key",)),
    Case(
        "PaCo, BatchFormer",
        lambda: paco(Streams(BatchFormer(32))),
        batches=(views,),
        moving=("key",),
        # The keys' branch uses the trained BatchFormer without gradient.
        first_order=lambda: paco(Streams(BatchFormer(32).requires_grad_(False))),
    ),
    Case(
        "DeiT",
        lambda: DistillTokens(vit(pool="tokens"), TokenHeads(32, 5), CrossEntropy()),
        batches=(taught, taught_softly),
    ),
    Case(
        "DeiT-LT, released",
        lambda: DistillTokens(
            vit(pool="tokens", drop_path=0.2),
            TokenHeads(32, 5),
            CrossEntropy(smoothing=0.1),
            weights=deferred(),
            trust=Release(0.4),
        ),
        batches=(taught, taught_softly),
    ),
    Case("cge", lambda: MatchPairs(cnn(), graph(32), SEEN), (hard,)),
    Case(
        "cge, learned nodes, BatchFormer",
        lambda: MatchPairs(
            cnn(), graph(32, learned=True), SEEN, neck=Streams(BatchFormer(32, dropout=0.0))
        ),
        (hard,),
    ),
    Case(
        "compcos, frozen features, BatchFormer",
        lambda: MatchPairs(
            Embedded(Embedded(Vectors(32, backbone=cnn()), [16]), [8], last="unit"),
            composed(8),
            SEEN,
            scale=20.0,
            neck=Streams(BatchFormer(16, dropout=0.0)),
            neck_at="layers",
        ),
        (hard,),
    ),
    Case(
        "compcos, open world",
        lambda: MatchOpenPairs(Embedded(cnn(), [8], last="unit"), composed(8), SEEN),
        (hard,),
    ),
    Case(
        "attribute and object, BatchFormer",
        lambda: ClassifyParts(
            cnn(), PAIRS, attributes=3, objects=3, neck=Streams(BatchFormer(32, dropout=0.0))
        ),
        (hard,),
    ),
    Case("ERM across domains", lambda: across(dropout=0.3), batches=(domains,)),
    *[
        Case(
            f"{penalty.__name__}, BatchFormer",
            lambda penalty=penalty: across(  # type: ignore[misc]
                penalty=penalty, penalty_weight=5.0, anneal=0.5, neck=Streams(BatchFormer(32))
            ),
            batches=(domains,),
        )
        for penalty in (coral, irm, vrex)
    ],
    Case("frozen batch norm", lambda: across(freeze_batchnorm=True), batches=(domains,)),
    Case(
        "MixStyle",
        lambda: across(style=MixStyle(probability=1.0)),
        batches=(domains,),
        first_order=lambda: across(style=MixStyle(probability=0.0)),  # without its stop-gradient
    ),
    Case("MoCo v2", moco, batches=(views,), moving=("key",)),
    Case(
        "MoCo v2, BatchFormer",
        lambda: moco(Streams(BatchFormer(32)), norm="per_stream", queue_keys="both"),
        batches=(views,),
        moving=("key",),
        # The keys' branch uses the trained BatchFormer without gradient.
        first_order=lambda: moco(Streams(BatchFormer(32).requires_grad_(False))),
    ),
    Case("MoCo v3", lambda: moco3(cnn()), batches=(views,), moving=("key",)),
    Case("MoCo v3, ViT", lambda: moco3(vit()), batches=(views,), moving=("key",)),
    Case(
        "MoCo v3, BatchFormer, released pairings",
        lambda: moco3(cnn(), Streams(BatchFormer(32)), pairs="released"),
        batches=(views,),
        moving=("key",),
        first_order=lambda: moco3(cnn(), Streams(BatchFormer(32).requires_grad_(False))),
    ),
    Case(
        "linear probe, nearest neighbours",
        lambda: Probe(Frozen(cnn()), Linear(32, 5), LogitAdjusted(COUNTS), knn=neighbours()),
        batches=(hard,),
    ),
    Case("linear probe", lambda: Classify(Frozen(cnn()), Linear(32, 5), LogitAdjusted(COUNTS))),
]


@pytest.mark.parametrize(
    ("case", "batch"),
    [
        pytest.param(case, batch, id=f"{case.name}, {batch.__name__}")
        for case in CASES
        for batch in case.batches
    ],
)
def test_a_method_keeps_the_contract(case: Case, batch: Callable[[], Batch]) -> None:
    check_method(case.method, batch(), moving=case.moving, first_order=case.first_order)


# The contract itself: each check fails for a method that breaks it.


class Counting(Classify):
    """Pushes a queue in forward."""

    def __init__(self) -> None:
        super().__init__(cnn(), Linear(32, 5), CrossEntropy())
        self.queue = Queue(2, 4)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        self.queue.push(torch.ones(1, 2))
        return super().forward(batch, clock)


class Unseeded(Classify):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__(cnn(), Linear(32, 5), CrossEntropy())
        self.generator = torch.Generator()

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        terms = super().forward(batch, clock).terms
        return Outcome(
            {**terms, "noise": torch.rand((), generator=self.generator, dtype=torch.float64)}
        )


class Forgetful(Classify):
    """Owns a head that nobody asks."""

    def __init__(self) -> None:
        super().__init__(cnn(), Linear(32, 5), CrossEntropy())
        self.extra = nn.Linear(32, 5)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class WrongSign(Classify):
    """Climbs the loss."""

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        return Outcome({"class": Reversed.apply(super().forward(batch, clock).loss)})


class Leaking(Classify):
    """Normalises by the batch when predicting."""

    def predict(self, image: Tensor) -> Tensor:
        logits = super().predict(image)
        return logits - logits.mean(0)


class Following(Classify):
    """Has a teacher that follows train()."""

    def __init__(self) -> None:
        super().__init__(cnn(), Linear(32, 5), CrossEntropy())
        self.teacher = cnn().requires_grad_(False)

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        self.teacher(batch["image"])
        return super().forward(batch, clock)


class Misspelt(Classify):
    """Deploys with a spec of other numbers."""

    def deploy(self) -> Any:
        deployed = super().deploy()
        deployed.spec = {
            **deployed.spec,
            "network": {**deployed.spec["network"], "mean": [0.5, 0.5, 0.5]},
        }
        return deployed


class Headless(Classify):
    """Calls its prediction by another name."""

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        return {"main": self.predict(image)}


def broken(kind: type[Classify]) -> Classify:
    torch.manual_seed(0)
    return kind(cnn(), Linear(32, 5), CrossEntropy()).double().train()


def test_the_contract_notices_state_written_in_forward() -> None:
    with pytest.raises(AssertionError, match=r"forward wrote \['queue.stored', 'queue.position'\]"):
        check_forward(Counting().double(), hard(), CLOCKS[0])


def test_the_contract_notices_unseeded_random_numbers() -> None:
    with pytest.raises(AssertionError, match="another loss"):
        check_forward(Unseeded().double(), hard(), CLOCKS[0])


def test_the_contract_notices_a_forgotten_head() -> None:
    with pytest.raises(
        AssertionError, match=r"no gradient reaches \['extra.weight', 'extra.bias'\]"
    ):
        check_gradients(Forgetful().double(), hard(), CLOCKS[0])


def test_the_contract_notices_a_wrong_sign() -> None:
    with pytest.raises(AssertionError, match="first order"):
        check_first_order(broken(WrongSign), hard(), CLOCKS[0])


def test_the_contract_notices_a_prediction_from_neighbours() -> None:
    with pytest.raises(AssertionError, match="neighbours"):
        check_predictions(broken(Leaking), hard()["image"])


def test_the_contract_notices_a_teacher_that_follows_train() -> None:
    with pytest.raises(AssertionError, match=r"frozen, but moved: .*running_mean"):
        check_frozen_parts(Following().double(), hard())
    check_frozen_parts(Following().double(), hard(), moving=("teacher",))


def test_the_contract_notices_a_spec_that_rebuilds_something_else() -> None:
    with pytest.raises(AssertionError, match="does not rebuild"):
        check_deployment(broken(Misspelt), hard()["image"])


def test_a_teacher_in_a_method_stays_as_it_is() -> None:
    method = Following()
    method.teacher = Teacher(cnn(), size=8)  # type: ignore[assignment]
    check_frozen_parts(method.double(), hard())


def test_the_contract_notices_heads_without_the_prediction() -> None:
    with pytest.raises(AssertionError, match=r'heads does not give .* as "logits"'):
        check_deployment(broken(Headless), hard()["image"])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Counting, "forward wrote"),
        (Unseeded, "another loss"),
        (Forgetful, "no gradient reaches"),
        (WrongSign, "first order"),
        (Leaking, "neighbours"),
        (Following, "frozen, but moved"),
        (Misspelt, "does not rebuild"),
        (Headless, "heads"),
    ],
)
def test_check_method_runs_every_check(kind: type[Classify], message: str) -> None:
    builder: Any = kind
    builds_itself = kind in (Counting, Unseeded, Forgetful, Following)

    def make() -> Method[Any]:
        method: Method[Any] = builder() if builds_itself else broken(kind)
        return method

    with pytest.raises(AssertionError, match=message):
        check_method(make, hard())


class Alternating(Classify):
    """Two players: the head learns in every third step, the network in the others."""

    steps_per_round = 3

    def forward(self, batch: Labelled, clock: Clock) -> Outcome:
        features = self.network(batch["image"])
        if clock.step % 3 == 2:
            logits = self.head(features.detach())
        else:
            frozen = {name: p.detach() for name, p in self.head.named_parameters()}
            logits = torch.func.functional_call(self.head, frozen, (features,))
        return Outcome({"class": self.loss(logits, batch["target"])})


class Hurried(Alternating):
    """Says that a round has two steps, in which the head does not learn."""

    steps_per_round = 2


def test_players_that_alternate_are_checked_over_a_round() -> None:
    def make(kind: type[Classify]) -> Method[Any]:
        return kind(cnn(), Linear(32, 5), CrossEntropy())

    check_method(lambda: make(Alternating), hard())
    with pytest.raises(AssertionError, match=r"no gradient reaches \['head.weight'"):
        check_method(lambda: make(Hurried), hard(), clocks=CLOCKS[:1])
