"""What every method must do. A new method joins by one entry in CASES.

Killed at any step and resumed, equal to the bit: that part of the contract is the engine's, and tested there.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from longtail.core import Clock, Labelled, Method, Outcome
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
from longtail.methods import Classify, DistillTokens, MaskedAutoencode, PaCo, Ride
from longtail.methods.distill_tokens import Release
from longtail.nn import (
    BatchFormer,
    Classifier,
    Cosine,
    CosineExperts,
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
from longtail.schedules import Deferred

COUNTS = torch.tensor([40, 20, 9, 4, 2])
CLOCKS = [Clock(0, 100, 0, 10), Clock(50, 100, 5, 10), Clock(99, 100, 9, 10)]
Batch = Mapping[str, Tensor]


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
    moving: tuple[
        str, ...
    ] = ()  # modules without trainable parameters that `after_step` moves: momentum copies
    first_order: Callable[[], Method[Any]] | None = (
        None  # without its stop-gradients, where first order would not be all
    )


def cnn() -> Network:
    return build({"name": "fast_cnn", "size": 8, "width": 8})


def vit(**more: object) -> Network:
    return build({"name": "vit_mini", "size": 8, "patch": 4, "width": 16, "depth": 2, **more})


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


def paco(neck: Neck | None = None) -> PaCo:
    return PaCo(
        cnn(),
        Linear(32, 5),
        ParametricContrastive(COUNTS, temperature=0.2),
        dim=8,
        size=24,
        neck=neck,
    )


CASES = [
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
            neck=Streams(BatchFormer(16, layers=2), plain=0.0, attended=1.0),
        ),
    ),
    Case(
        "BatchFormer, loss scale only",
        lambda: Classify(
            cnn(),
            Linear(32, 5),
            CrossEntropy(),
            neck=Streams(BatchFormer(32), plain=1.5, attended=0.0),
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
    Case("linear probe", lambda: Classify(Frozen(cnn()), Linear(32, 5), LogitAdjusted(COUNTS))),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def make(case: Case, other: Callable[[], Method[Any]] | None = None) -> Method[Any]:
    torch.manual_seed(0)
    return (other or case.method)().double().train()


def state(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer, saved or not."""
    return {
        name: tensor.detach().clone()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def statistics(module: nn.Module) -> set[str]:
    """Names of batch-norm buffers of modules that follow `train()`: the only state that `forward` may write."""
    norms = {
        name: m for name, m in module.named_modules() if isinstance(m, _NormBase) and m.training
    }
    return {f"{name}.{buffer}" for name, m in norms.items() for buffer, _ in m.named_buffers()}


def check_forward_is_a_function(method: Method[Any], batch: Batch, clock: Clock) -> None:
    before, losses = state(method), []
    for _ in range(2):
        torch.manual_seed(1)
        losses.append(method(batch, clock).loss)
    allowed = statistics(method)
    written = [
        name
        for name, tensor in state(method).items()
        if name not in allowed and not torch.equal(tensor, before[name])
    ]
    assert not written, f"forward wrote {written}"
    assert torch.equal(*losses), "the same seed gave another loss"


def check_gradient_reaches_everything(method: Method[Any], batch: Batch, clock: Clock) -> None:
    method.zero_grad()
    torch.manual_seed(1)
    outcome = method(batch, clock)
    assert outcome.loss.isfinite()
    outcome.loss.backward()
    trainable = {name: p.grad for name, p in method.named_parameters() if p.requires_grad}
    assert trainable, "nothing to learn"
    dead = [
        name
        for name, grad in trainable.items()
        if grad is None or not grad.isfinite().all() or not grad.any()
    ]
    assert not dead, f"no gradient reaches {dead}"


def check_first_order(method: Method[Any], batch: Batch, clock: Clock) -> None:
    probe = copy.deepcopy(method)
    parameters = [p for p in probe.parameters() if p.requires_grad]
    torch.manual_seed(1)
    before = probe(batch, clock).loss
    gradients = torch.autograd.grad(before, parameters)
    size = 1e-7 / float(sum(g.square().sum() for g in gradients))
    with torch.no_grad():
        for p, gradient in zip(parameters, gradients, strict=True):
            p.sub_(gradient, alpha=size)
    torch.manual_seed(1)
    fell = (before - probe(batch, clock).loss).item() / 1e-7
    assert fell == pytest.approx(1, abs=0.01), (
        f"a step lowered the loss by {fell:.4f} of what first order predicts"
    )


def check_rows_are_independent(method: Method[Any], batch: Batch) -> None:
    method.eval()
    with torch.no_grad():
        together = method.predict(batch["image"])
        alone = torch.cat([method.predict(row[None]) for row in batch["image"]])
    assert torch.allclose(together, alone, rtol=1e-9, atol=1e-9), (
        "a prediction depends on its neighbours"
    )


def check_frozen_parts_stay(
    method: Method[Any], batch: Batch, moving: tuple[str, ...] = ()
) -> None:
    """Train an epoch of five steps; whatever has parameters but none to train is as before, buffers included."""
    still = {
        name: module
        for name, module in method.named_modules()
        if any(True for _ in module.parameters())
        and not any(p.requires_grad for p in module.parameters())
        and not any(name == root or name.startswith(f"{root}.") for root in moving)
    }
    before = {name: state(module) for name, module in still.items()}
    start = state(method)
    optimizer = torch.optim.SGD(
        [p for p in method.parameters() if p.requires_grad], lr=0.05, momentum=0.9
    )
    method.train()
    for step in range(5):
        clock = Clock(step, 5, 0, 1)
        optimizer.zero_grad()
        outcome = method(batch, clock)
        outcome.loss.backward()
        optimizer.step()
        method.after_step(outcome, clock)
    moved = [
        f"{name}.{key}"
        for name, module in still.items()
        for key, t in state(module).items()
        if not torch.equal(t, before[name][key])
    ]
    assert not moved, f"frozen, but moved: {moved}"
    assert any(not torch.equal(tensor, start[name]) for name, tensor in state(method).items()), (
        "nothing was trained"
    )


def check_deployment(method: Method[Any], batch: Batch) -> None:
    method.eval()
    deployed = method.deploy().eval()
    with torch.no_grad():
        answer = method.predict(batch["image"])
        assert torch.equal(deployed(batch["image"]), answer), "deploy() is not predict"
        again = build(json.loads(json.dumps(deployed.spec))).double().eval()
        again.load_state_dict(deployed.state_dict())
        assert torch.equal(again(batch["image"]), answer), (
            "the spec does not rebuild what was deployed"
        )


@every
@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: f"{clock.progress}")
def test_forward_is_a_function_of_weights_batch_and_clock(case: Case, clock: Clock) -> None:
    for batch in case.batches:
        check_forward_is_a_function(make(case), batch(), clock)


@every
@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: f"{clock.progress}")
def test_gradient_reaches_every_trainable_parameter(case: Case, clock: Clock) -> None:
    for batch in case.batches:
        check_gradient_reaches_everything(make(case), batch(), clock)


@every
@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: f"{clock.progress}")
def test_a_tiny_step_lowers_the_loss_as_first_order_predicts(case: Case, clock: Clock) -> None:
    for batch in case.batches:
        check_first_order(make(case, case.first_order), batch(), clock)


@every
def test_a_prediction_does_not_depend_on_its_neighbours(case: Case) -> None:
    check_rows_are_independent(make(case), hard())


@every
def test_a_frozen_module_does_not_change_in_an_epoch(case: Case) -> None:
    check_frozen_parts_stay(make(case), case.batches[0](), case.moving)


@every
def test_what_is_deployed_predicts_and_comes_back_from_its_spec(case: Case) -> None:
    method = make(case)
    check_frozen_parts_stay(
        method, case.batches[0](), case.moving
    )  # trained, so that batch-norm statistics are not the initial ones
    check_deployment(method, hard())


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
    """Normalises by the batch when asked for predictions."""

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


def broken(kind: type[Classify]) -> Classify:
    torch.manual_seed(0)
    return kind(cnn(), Linear(32, 5), CrossEntropy()).double().train()


def test_the_contract_notices_state_written_in_forward() -> None:
    with pytest.raises(AssertionError, match=r"forward wrote \['queue.stored', 'queue.position'\]"):
        check_forward_is_a_function(Counting().double(), hard(), CLOCKS[0])


def test_the_contract_notices_draws_that_are_not_seeded() -> None:
    with pytest.raises(AssertionError, match="another loss"):
        check_forward_is_a_function(Unseeded().double(), hard(), CLOCKS[0])


def test_the_contract_notices_a_forgotten_head() -> None:
    with pytest.raises(
        AssertionError, match=r"no gradient reaches \['extra.weight', 'extra.bias'\]"
    ):
        check_gradient_reaches_everything(Forgetful().double(), hard(), CLOCKS[0])


def test_the_contract_notices_a_wrong_sign() -> None:
    with pytest.raises(AssertionError, match="first order"):
        check_first_order(broken(WrongSign), hard(), CLOCKS[0])


def test_the_contract_notices_a_prediction_from_neighbours() -> None:
    with pytest.raises(AssertionError, match="neighbours"):
        check_rows_are_independent(broken(Leaking), hard())


def test_the_contract_notices_a_teacher_that_follows_train() -> None:
    with pytest.raises(AssertionError, match=r"frozen, but moved: .*running_mean"):
        check_frozen_parts_stay(Following().double(), hard())
    check_frozen_parts_stay(Following().double(), hard(), moving=("teacher",))


def test_the_contract_notices_a_spec_that_rebuilds_something_else() -> None:
    with pytest.raises(AssertionError, match="does not rebuild"):
        check_deployment(broken(Misspelt), hard())


def test_a_teacher_in_a_method_stays_as_it_is() -> None:
    method = Following()
    method.teacher = Teacher(cnn(), size=8)  # type: ignore[assignment]
    check_frozen_parts_stay(method.double(), hard())
