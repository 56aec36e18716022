import pytest
import torch
from torch import nn

from longtail.core import Clock, Labelled
from longtail.losses import (
    BalancedBCE,
    BinaryCrossEntropy,
    ClassBalancedBCE,
    CrossEntropy,
    LogitAdjusted,
)
from longtail.methods import Classify
from longtail.nn import BatchFormer, Classifier, Frozen, Linear, Network, Streams, build
from longtail.schedules import Deferred

COUNTS = torch.tensor([40, 8, 2])


def network() -> Network:
    torch.manual_seed(0)
    return build({"name": "fast_cnn", "size": 8, "width": 4})


def batch() -> Labelled:
    torch.manual_seed(1)
    return {
        "image": torch.rand(6, 3, 8, 8),
        "target": torch.tensor([0, 0, 0, 1, 1, 2]),
        "position": torch.arange(6),
    }


def clock(step: int = 0) -> Clock:
    return Clock(step, 10, 0, 1)


def test_without_a_neck_it_is_the_loss_of_the_logits() -> None:
    method = Classify(network(), Linear(16, 3), LogitAdjusted(COUNTS))
    given = batch()
    outcome = method(given, clock())
    assert list(outcome.terms) == ["class"]
    assert torch.equal(outcome.loss, method.loss(method.predict(given["image"]), given["target"]))


def test_class_weights_follow_the_clock() -> None:
    weights = torch.tensor([0.5, 1.0, 1.5])
    method = Classify(network(), Linear(16, 3), CrossEntropy(), weights=Deferred(weights, 0.8))
    given = batch()
    logits = method.predict(given["image"])
    assert torch.equal(method(given, clock(7)).loss, CrossEntropy()(logits, given["target"]))
    assert torch.equal(
        method(given, clock(8)).loss, CrossEntropy()(logits, given["target"], weight=weights)
    )


@pytest.mark.parametrize(
    ("plain_weight", "batchformer_weight"), [(0.5, 0.5), (1.5, 1.5), (0.0, 1.0), (1.5, 0.0)]
)
def test_streams_are_terms_and_those_of_weight_zero_notes(
    plain_weight: float, batchformer_weight: float
) -> None:
    neck = Streams(
        BatchFormer(16, dropout=0.0),
        plain_weight=plain_weight,
        batchformer_weight=batchformer_weight,
    )
    method = Classify(
        network(),
        Linear(16, 3),
        LogitAdjusted(COUNTS),
        neck=neck,
        weights=Deferred(torch.tensor([0.5, 1.0, 1.5]), 0.0),
    )
    given = batch()
    outcome = method(given, clock())
    features = method.network(given["image"])
    parts = {"plain": features, "attended": neck.batchformer.attend(features)}
    for (name, rows), factor in zip(parts.items(), (plain_weight, batchformer_weight), strict=True):
        loss = method.loss(method.head(rows), given["target"], weight=torch.tensor([0.5, 1.0, 1.5]))
        shown = outcome.terms[name] if factor else outcome.notes[name]
        assert torch.allclose(shown, (factor or 1) * loss)
        assert (name in outcome.terms) is (factor > 0)
    assert not any(note.requires_grad for note in outcome.notes.values())
    streamed = neck(features, given["target"])
    complete = method.loss(
        method.head(streamed.features),
        streamed.aligned[0],
        weight=torch.tensor([0.5, 1.0, 1.5]),
        rows=streamed.rows,
    )
    assert torch.allclose(outcome.loss, complete)


def test_the_neck_is_nowhere_in_prediction_and_deployment() -> None:
    method = Classify(network(), Linear(16, 3), CrossEntropy(), neck=Streams(BatchFormer(16)))
    plain = Classify(method.network, method.head, CrossEntropy())
    image = batch()["image"]
    method.eval().neck.train()  # or it would be the identity, wherever it stood
    assert torch.equal(method.predict(image), plain.eval().predict(image))
    assert not any("neck" in name for name in method.deploy().state_dict())


def test_deployment_shares_weights() -> None:
    method = Classify(network(), Linear(16, 3), CrossEntropy())
    assert {id(p) for p in method.deploy().parameters()} == {id(p) for p in method.parameters()}


def test_a_linear_probe_deploys_as_any_other() -> None:
    backbone = network()
    probe = Classify(Frozen(backbone), Linear(16, 3), CrossEntropy())
    assert [name for name, p in probe.named_parameters() if p.requires_grad] == [
        "head.weight",
        "head.bias",
    ]
    assert probe.deploy().network is backbone
    assert build(probe.deploy().spec).state_dict().keys() == probe.deploy().state_dict().keys()


def test_a_bare_batchformer_is_refused() -> None:
    with pytest.raises(ValueError, match="got BatchFormer: wrap it in Streams"):
        Classify(network(), Linear(16, 3), CrossEntropy(), neck=BatchFormer(16))  # type: ignore[arg-type]


def test_a_network_without_a_spec_cannot_be_deployed() -> None:
    with pytest.raises(ValueError, match=r"got Flatten: use longtail\.nn\.build"):
        Classify(Frozen(nn.Flatten()), Linear(192, 3), CrossEntropy()).deploy()


# Its sigmoids are predictions for classes that every second image has
@pytest.mark.parametrize(
    ("loss", "confidence"),
    [
        (CrossEntropy(), "softmax"),
        (LogitAdjusted(COUNTS), "softmax"),
        (BinaryCrossEntropy(), "sigmoid"),
        (BalancedBCE(COUNTS, test_prior="uniform"), "sigmoid"),
        (BalancedBCE(COUNTS), "softmax"),
        (ClassBalancedBCE(COUNTS), "sigmoid"),
    ],
)
def test_a_deployed_network_says_how_its_logits_are_meant(loss: nn.Module, confidence: str) -> None:
    deployed = Classify(network(), Linear(16, 3), loss).deploy()
    repeated = build(deployed.spec)
    assert isinstance(repeated, Classifier)
    assert deployed.confidence == repeated.confidence == confidence
    assert repeated.spec == deployed.spec


def test_a_loss_of_another_signature_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"expected a loss .*, got CrossEntropyLoss, which takes input, target: use one of"
            r" longtail.losses"
        ),
    ):
        Classify(network(), Linear(16, 3), nn.CrossEntropyLoss())


def test_a_confidence_that_is_a_number_is_refused_when_deployed() -> None:
    loss = CrossEntropy()
    loss.confidence = 0.9  # type: ignore[assignment]  # as in many codes of label smoothing
    with pytest.raises(ValueError, match=r"must be 'softmax' or 'sigmoid', got 0\.9"):
        Classify(network(), Linear(16, 3), loss).deploy()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_batchformer_that_is_asleep_is_no_neck(frozen: bool) -> None:
    neck = Streams(Frozen(BatchFormer(16)) if frozen else BatchFormer(16))  # type: ignore[arg-type]
    neck.batchformer.eval()
    outcome = Classify(network(), Linear(16, 3), CrossEntropy(), neck=neck)(batch(), clock())
    neck.batchformer.eval()
    assert list(outcome.terms) == ["class"]
    assert outcome.loss.isfinite()
