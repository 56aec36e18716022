"""Published rows by name, for `longtail reproduce` and for reports: what was published, with which settings, and how near is near enough.

Values are fractions, as in a run's row. Where a paper gives a deviation over seeds, the band is three of them around the mean, and at least
one point; where it gives none, one point around the value. Rows that are our own have the numbers of `benchmarks/results`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from longtail.recipes.signatures import read
from longtail.records.row import Row, mirrored

IMAGES: Mapping[tuple[str, float | None], int] = {
    ("cifar10-lt", 100.0): 12_406,
    ("cifar10-lt", 50.0): 13_996,
    ("cifar10-lt", 10.0): 20_431,
    ("cifar100-lt", 200.0): 9_502,
    ("cifar100-lt", 100.0): 10_847,
    ("cifar100-lt", 50.0): 12_608,
    ("cifar100-lt", 10.0): 19_573,
    ("imagenet-lt", None): 115_846,
    ("places-lt", None): 62_500,
    ("inaturalist18", None): 437_513,
    ("digits-lt", None): 405,
}
"""Training images of each set and imbalance before validation is held out: what tells one cut from another in a run's row."""


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """The recipe of a published row on long-tailed digits, in minutes of a CPU: does everything run, and learn?

    `value` is the mean over the three seeds of `arm` in the plan digits_lt_smokes; the band is three deviations of a seed around it, pooled
    over the arms. It says nothing about the published number.
    """

    arm: str
    keywords: Mapping[str, Any]
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of a table: accuracy as a fraction, its band, and the settings that belong to it."""

    name: str
    recipe: str
    data: str
    value: float
    low: float
    high: float
    band: str  # why low and high are what they are
    source: str
    keywords: Mapping[str, Any] = field(default_factory=dict)  # what is not the recipe's default
    imbalance: float | None = None
    protocol: Literal["holdout", "paper"] = "paper"
    tta: Literal["none", "flip"] = "none"
    metric: Literal["top1", "balanced"] = "top1"
    seeds: tuple[int, ...] = (0, 1, 2)
    cost: str = ""  # as its authors state it
    needs: Mapping[str, str] = field(
        default_factory=dict
    )  # keywords that only the user can give, and what they have to be
    differs: tuple[str, ...] = ()  # from what was published
    smoke: str | None = None

    def flags(self) -> dict[str, Any]:
        """The flags of the data and of the evaluation."""
        return {"imbalance": self.imbalance, "protocol": self.protocol, "tta": self.tta}

    def verdict(
        self, measured: float, smoke: Smoke | None = None
    ) -> Literal["inside", "below", "above"]:
        """Where a measured fraction lies; ends of the band are inside."""
        low, high = (self.low, self.high) if smoke is None else (smoke.low, smoke.high)
        return "below" if measured < low else "above" if measured > high else "inside"


def match(row: Row) -> Published | None:
    """Find the published row that a finished run can be compared with: the same recipe with all its keywords, data, protocol and averaging.

    Epochs are keywords, so a shorter run matches nothing. Which epoch a paper chose, and on what, is in `differs`.
    """
    return next((own for own in PUBLISHED.values() if _comparable(own, row)), None)


def _comparable(own: Published, row: Row) -> bool:
    data = row["data"]
    same = (
        row["recipe"] == own.recipe
        and data["name"] == own.data
        and data["protocol"] == own.protocol
        and row["tta"] == own.tta
        and "adjusting" not in row
        and mirrored(row) == (own.data != "digits-lt")
        and row["split_seed"] == 0
        and sum(data["counts_before"]) == IMAGES[own.data, own.imbalance]
        and (row["pretraining"] is not None) == ("pretrained" in own.needs)
    )
    if not same:
        return False
    given = dict(row["keywords"])
    asked = read(own.recipe).keywords({**own.keywords, **dict.fromkeys(own.needs)})
    own_values = {
        name: given.pop(name, value) for name, value in asked.items()
    }  # a keyword that is newer than the run had its default
    return not given and all(
        own_values[name] is not None if name in own.needs else own_values[name] == asked[name]
        for name in asked
    )


_SELECTED = "the paper takes the epoch that is best on the test images; here the last epoch counts"
_SUBSET = (
    "the released code cuts the data with an unseeded draw; here it is the field's conventional cut"
)
_POINT = "one point around the value: the paper gives no deviation"
_DECAY = "norms and biases are not decayed, where released code mostly decays all"
_NESTEROV = "momentum is Nesterov's"
_REFLECTED = "crops are padded by reflection, where released code pads with zeros"
_TEACHER = "the teacher is the moving average of its weights"
_BATCHFORMER = "Hou et al. 2022 (BatchFormer), table {}"
_LIVT = "Xu et al. 2023 (LiVT), table {}"
_DEIT_LT = "Rangwani et al. 2024 (DeiT-LT), table {}"


def _row(name: str, value: float, **own: Any) -> Published:
    """A row from percent; one point around it is the band unless there is a mean with a deviation of single seeds."""
    mean, deviation = own.pop("mean", (value, 0.0))
    wide = max(1.0, 3 * deviation)
    own.setdefault("band", _POINT)
    if not own["source"].startswith("our own"):
        recipe, differs = own["recipe"], own.get("differs", ())
        convolutional = recipe in ("balanced_softmax", "ride", "paco", "ldam")
        differs += (_DECAY,) if convolutional else ()
        differs += (_NESTEROV,) if recipe in ("balanced_softmax", "ride") else ()
        differs += (_REFLECTED,) if convolutional and own["data"].startswith("cifar") else ()
        own["differs"] = differs + ((_TEACHER,) if recipe == "deit_lt" else ())
    return Published(
        name=name,
        value=_fraction(value),
        low=_fraction(mean - wide),
        high=_fraction(mean + wide),
        **own,
    )


def _fraction(percent: float) -> float:
    return round(percent / 100, 6)


def _table() -> list[Published]:
    """Every row. Written as code, because most rows share their settings with others."""
    return [*_batchformer(), *_livt(), *_deit_lt(), *_ours()]


def _batchformer() -> list[Published]:
    # Balanced Softmax: 13,000 steps of 512 images, 800 of them warming up from 0.05 to 0.1; epochs counted in batches of the loader.
    shared = {
        "network": "resnet32",
        "batch": 512,
        "warmup_start": 0.5,
        "augment": "autoaugment",
        "ema": 0.0,
    }
    softmax = {
        100.0: {**shared, "epochs": 591, "warmup": 0.0626},
        200.0: {**shared, "epochs": 685, "warmup": 0.0628},
    }
    paco = {"network": "resnet32", "epochs": 400, "ema": 0.0}
    scaled = {"batchformer": "on", "plain": 1.5, "attended": 1.5}
    loss = "the loss is that of the released code, three times Algorithm 1's (--plain 0.5 --attended 0.5)"
    appendix = (
        "there is no released code for PaCo with BatchFormer; this follows the paper's appendix"
    )
    rows = []
    for imbalance, values in ((100.0, (50.7, 51.7, 51.9, 52.4)), (200.0, (46.4, 47.5, 47.1, 47.8))):
        data: dict[str, Any] = {
            "data": "cifar100-lt",
            "imbalance": imbalance,
            "source": _BATCHFORMER.format(1),
        }
        before = "cifar100-lt" if imbalance == 100.0 else "cifar100-lt-200"
        plain, attended = softmax[imbalance], {**softmax[imbalance], **scaled}
        rows += [
            _row(
                f"{before}-balanced-softmax",
                values[0],
                recipe="balanced_softmax",
                keywords=plain,
                differs=(_SELECTED, _SUBSET),
                smoke="balanced",
                **data,
            ),
            _row(
                f"{before}-balanced-softmax-batchformer",
                values[1],
                recipe="balanced_softmax",
                keywords=attended,
                differs=(loss, _SELECTED, _SUBSET),
                smoke="balanced-batchformer",
                **data,
            ),
            _row(
                f"{before}-paco",
                values[2],
                recipe="paco",
                keywords=paco,
                differs=(_SELECTED,),
                smoke="paco",
                **data,
            ),
            _row(
                f"{before}-paco-batchformer",
                values[3],
                recipe="paco",
                keywords={**paco, "batchformer": "on"},
                differs=(appendix, _SELECTED),
                smoke="paco-batchformer",
                **data,
            ),
        ]
    ride = {"network": "resnet32", "epochs": 200, "augment": "rotated", "ema": 0.0}
    stages = "RIDE in one stage, without distillation, as the BatchFormer paper trained it; with BatchFormer it was not published for this data"
    rows.append(
        _row(
            "cifar100-lt-ride",
            48.0,
            recipe="ride",
            data="cifar100-lt",
            imbalance=100.0,
            keywords=ride,
            source=_BATCHFORMER.format(1),
            differs=(stages, _SELECTED),
            smoke="ride",
        )
    )
    # ImageNet-LT with ResNet-50: 90 epochs of 128 images, rate 0.05 along a cosine.
    large = {
        "network": "timm:resnet50",
        "size": 224,
        "epochs": 90,
        "lr": 0.05,
        "warmup": 0.0,
        "augment": "randaugment",
        "ema": 0.0,
    }
    views = "the paper's views are random crops, flips and colour jitter; here they are RandAugment's, which have the crops and flips"
    for name, value, more, said in (("", 50.1, {}, ()), ("-batchformer", 51.1, scaled, (loss,))):
        rows.append(
            _row(
                f"imagenet-lt-balanced-softmax{name}",
                value,
                recipe="balanced_softmax",
                data="imagenet-lt",
                keywords={**large, **more},
                source=_BATCHFORMER.format(2),
                differs=(views, *said),
                smoke=f"balanced{name}",
            )
        )
    return rows


def _livt() -> list[Published]:
    # 800 epochs of 4,096 images that paint, then epochs of 1,024 that learn labels.
    base: dict[str, Any] = {
        "network": "timm:vit_base_patch16_224",
        "batch": 128,
        "accumulate": 8,
        "lr": 1e-3,
    }
    painted = {
        "pretrain_epochs": 800,
        "pretrain_batch": 256,
        "pretrain_accumulate": 16,
        "pretrain_lr": 1.5e-4,
    }
    painted |= {"decoder_width": 512, "decoder_depth": 8, "decoder_heads": 16}
    logs = "the authors' logs show other batches and rates than the paper for ImageNet-LT at 224 pixels; these are the paper's"
    encoder = {
        "pretrained": "an encoder of ViT-B/16 that was pretrained on ImageNet-1K, such as MAE's mae_pretrain_vit_base.pth"
    }
    rows = []
    for name, value, loss in (
        ("livt", 60.9, "bal_bce"),
        ("mae", 54.5, "ce"),
        ("livt-bal-ce", 60.1, "bal_ce"),
        ("livt-bce", 52.4, "bce"),
    ):
        rows.append(
            _row(
                f"imagenet-lt-{name}",
                value,
                recipe="livt",
                data="imagenet-lt",
                keywords={**base, **painted, "size": 224, "loss": loss},
                source=_LIVT.format(6),
                differs=(logs,),
                smoke="livt",
            )
        )
    rows.append(
        _row(
            "imagenet-lt-livt-384",
            63.8,
            recipe="livt",
            data="imagenet-lt",
            keywords={**base, **painted, "size": 384, "pretrain_size": 224},
            source=_LIVT.format(2),
            differs=("the authors' log ends at 63.5",),
            smoke="livt",
        )
    )
    for name, value, size, cost in (
        (
            "inaturalist18-livt",
            76.1,
            224,
            "23.5 hours on 4 GPUs for the second stage alone (the authors' log)",
        ),
        (
            "inaturalist18-livt-384",
            81.0,
            384,
            "91 hours on 2 GPUs for the second stage alone (the authors' log)",
        ),
    ):
        rows.append(
            _row(
                name,
                value,
                recipe="livt",
                data="inaturalist18",
                keywords={**base, **painted, "size": size, "pretrain_size": 128, "drop_path": 0.2},
                source=_LIVT.format(3),
                cost=cost,
                smoke="livt",
            )
        )
    for name, value, size in (("places-lt-livt", 40.8, 224), ("places-lt-livt-384", 42.6, 384)):
        rows.append(
            _row(
                name,
                value,
                recipe="livt",
                data="places-lt",
                keywords={**base, "size": size, "epochs": 30, "warmup": 0.167},
                source=_LIVT.format(4),
                needs=encoder,
                differs=("the released settings have tau 1.05, the paper 1, as here",),
                smoke="livt",
            )
        )
    # CIFAR: 64 pixels, 20 epochs of 2,048 images, of which 5 warm up.
    small = {
        **base,
        "size": 64,
        "epochs": 20,
        "accumulate": 16,
        "warmup": 0.25,
        "layer_decay": 0.65,
    }
    asked = "the paper names no settings for CIFAR: these are what its author answered in public, but for the second beta, 0.999 there"
    apart = {
        "cb": ("the released code runs it without mixup only; here with",),
        "ldam": (
            "the released code multiplies the logits of a linear head by 30; here they are cosines, as in LDAM's own paper",
        ),
    }
    losses = {
        "ce": "mae",
        "cb": "livt-cb",
        "ldam": "livt-ldam",
        "bal_ce": "livt-bal-ce",
        "bal_bce": "livt",
    }
    for data, imbalance, values in (
        ("cifar10-lt", 100.0, (79.2, 82.0, 78.6, 84.4, 86.3)),
        ("cifar10-lt", 10.0, (89.5, 89.9, 88.6, 90.7, 91.3)),
        ("cifar100-lt", 100.0, (50.9, 52.0, 52.56, 56.8, 58.2)),
        ("cifar100-lt", 10.0, (66.1, 66.8, 66.1, 68.1, 69.2)),
    ):
        for (loss, name), value in zip(losses.items(), values, strict=True):
            rows.append(
                _row(
                    f"{data}-{name}" if imbalance == 100.0 else f"{data}-{imbalance:g}-{name}",
                    value,
                    recipe="livt",
                    data=data,
                    imbalance=imbalance,
                    keywords={**small, "loss": loss},
                    source=_LIVT.format(7),
                    needs=encoder,
                    differs=(asked, *apart.get(loss, ())),
                    smoke="livt",
                )
            )
    return rows


def _deit_lt() -> list[Published]:
    sets = (
        ("cifar10-lt", 100.0),
        ("cifar10-lt", 50.0),
        ("cifar100-lt", 100.0),
        ("cifar100-lt", 50.0),
    )
    names = [data if imbalance == 100.0 else f"{data}-{imbalance:g}" for data, imbalance in sets]
    # The paper's standard errors over three seeds, times the root of three.
    means = ((87.3, 0.17), (89.9, 0.29), (54.8, 0.73), (60.6, 0.05))
    seeds = "one point, or three deviations of a seed if that is more, around the paper's mean over three seeds, {} (table S.3)"
    student: dict[str, Any] = {
        "network": "timm:deit_base_distilled_patch16_224",
        "size": 224,
        "epochs": 1200,
        "batch": 128,
    }
    student |= {"accumulate": 8, "lr": 1.25e-4, "warmup": 0.0042}
    cost = "15 hours on two RTX 3090 for the student (the authors')"
    rate = "the rate is the paper's 5e-4 at 1,024 images; the released code has half of it"
    radius = "the radius of SAM for PaCo was not disclosed; here 0.8, as for LDAM"
    users = "users report 52.0 and 45.3 with the released code"
    own: dict[str, Any] = {"source": _DEIT_LT.format(2)}
    rows = []
    for name, (data, imbalance), mean, ldam, paco in zip(
        names, sets, means, (84.8, 87.5, 52.0, 54.1), (87.5, 89.8, 55.6, 60.5), strict=True
    ):
        shared = {**own, "recipe": "deit_lt", "data": data, "imbalance": imbalance, "cost": cost}
        taught = {
            **student,
            "teacher_network": "resnet32",
            "teacher_rho": 0.8,
            "teacher_schedule": "steps",
        }
        said = (rate, users, _SELECTED) if name == "cifar100-lt" else (rate, _SELECTED)
        rows += [
            _row(
                f"{name}-deit-lt-ldam",
                ldam,
                keywords={**taught, "teacher_epochs": 200},
                differs=said,
                smoke="deit-lt-ldam",
                **shared,
            ),
            _row(
                f"{name}-deit-lt-paco",
                paco,
                mean=mean,
                band=seeds.format(mean[0]),
                keywords={**taught, "teacher_epochs": 400, "teacher_method": "paco"},
                differs=(radius, *said),
                smoke="deit-lt-paco",
                **shared,
            ),
        ]
    # Its baselines: convolutional ones with 200 epochs of 128 images, transformers as the student.
    convolutional = {"network": "resnet32", "epochs": 200, "schedule": "steps", "ema": 0.0}
    plain = {**student, "network": "timm:vit_base_patch16_224"}
    third = {
        "network": "timm:deit3_base_patch16_224",
        "size": 224,
        "epochs": 1200,
        "batch": 128,
        "accumulate": 16,
    }
    again = "the paper says a small number of epochs for the second classifier; here 10"
    silent = "the paper names no settings; here DeiT III's own rate and batch, for as many epochs as DeiT-LT"
    tables: tuple[
        tuple[str, str, Mapping[str, Any], tuple[float, ...], tuple[str, ...], str | None], ...
    ] = (
        (
            "ldam-drw",
            "ldam",
            {**convolutional, "rho": 0.0},
            (77.0, 79.3, 42.0, 45.1),
            (_SELECTED,),
            "ldam",
        ),
        (
            "ldam-drw-sam",
            "ldam",
            {**convolutional, "rho": 0.8},
            (81.9, 84.8, 45.4, 49.4),
            (_SELECTED,),
            "ldam-sam",
        ),
        ("vit", "vit", plain, (62.6, 70.1, 35.0, 39.0), (_SELECTED,), "vit"),
        ("vit-crt", "vit_crt", plain, (68.9, 74.5, 38.9, 42.2), (again, _SELECTED), "vit-crt"),
        ("deit3", "deit3", third, (59.1, 68.2, 38.1, 44.1), (silent, _SELECTED), None),
    )
    for method, recipe, keywords, values, differs, smoke in tables:
        for name, (data, imbalance), value in zip(names, sets, values, strict=True):
            settings: dict[str, Any] = {
                "recipe": recipe,
                "data": data,
                "imbalance": imbalance,
                "keywords": keywords,
            }
            rows.append(
                _row(f"{name}-{method}", value, differs=differs, smoke=smoke, **settings, **own)
            )
    # Large images: batches of 2,048, one of three augmentations, mixed to the end; teachers are ResNet-50.
    large = {
        **student,
        "batch": 128,
        "accumulate": 16,
        "lr": 6.25e-5,
        "augment": "threeaugment",
        "repeats": 1,
        "mix_until": 1.0,
    }
    for data, table, epochs, warmup, defer, values in (
        ("imagenet-lt", 3, 1400, 0.0036, 0.857, (55.6, 59.1)),
        ("inaturalist18", 4, 1000, 0.005, 0.9, (72.9, 75.1)),
    ):
        for method, value in zip(("ldam", "paco"), values, strict=True):
            rows.append(
                _row(
                    f"{data}-deit-lt-{method}",
                    value,
                    recipe="deit_lt",
                    data=data,
                    keywords={
                        **large,
                        "epochs": epochs,
                        "warmup": warmup,
                        "defer": defer,
                        "teacher_method": method,
                    },
                    source=_DEIT_LT.format(table),
                    needs={
                        "teacher": f"a finished run of {method} on this data with timm:resnet50"
                    },
                    differs=(
                        "the released script has RandAugment, erasing and repeated augmentation; here the paper's table S.1",
                    ),
                    smoke=f"deit-lt-{method}",
                )
            )
    return rows


def _ours() -> list[Published]:
    """Means and deviations over the three seeds of committed results, in percent."""
    rows = []
    band = "one point, or three deviations if that is more, around our mean over three seeds"
    for name, plan, arm, recipe, (mean, deviation), cost, own in (
        (
            "cifar10-lt-balanced-softmax-fast-cnn",
            "cifar10_lt_baselines",
            "balanced-paper",
            "balanced_softmax",
            (81.2067, 0.2754),
            1,
            {},
        ),
        (
            "cifar10-lt-cross-entropy-fast-cnn",
            "cifar10_lt_baselines",
            "plain-paper",
            "cross_entropy",
            (71.6, 0.13),
            1,
            {},
        ),
        (
            "cifar10-lt-balanced-softmax-fast-cnn-holdout",
            "cifar10_lt_baselines",
            "balanced-holdout",
            "balanced_softmax",
            (80.4367, 0.0945),
            1,
            {"protocol": "holdout"},
        ),
        (
            "cifar10-lt-cross-entropy-fast-cnn-holdout",
            "cifar10_lt_baselines",
            "plain-holdout",
            "cross_entropy",
            (70.75, 0.2951),
            1,
            {"protocol": "holdout"},
        ),
        (
            "digits-lt-balanced-softmax",
            "digits_lt_demo",
            "balanced",
            "balanced_softmax",
            (95.6, 0.7211),
            0,
            {},
        ),
        (
            "digits-lt-cross-entropy",
            "digits_lt_demo",
            "plain",
            "cross_entropy",
            (91.6667, 2.0526),
            0,
            {},
        ),
    ):
        cifar: dict[str, Any] = {
            "data": "cifar10-lt",
            "imbalance": 100.0,
            "tta": "flip",
            "smoke": "balanced",
        }
        digits: dict[str, Any] = {
            "data": "digits-lt",
            "protocol": "holdout",
            "keywords": {"batch": 32},
        }
        settings = {**(cifar if cost else digits), **own}
        if cost and recipe == "cross_entropy":
            settings["smoke"] = "plain"
        said = "15 to 35 minutes a seed on one core" if cost else "half a minute a seed on one core"
        source = f"our own: benchmarks/results/{plan}/{arm}"
        rows.append(
            _row(
                name,
                mean,
                mean=(mean, deviation),
                band=band,
                recipe=recipe,
                source=source,
                cost=said,
                **settings,
            )
        )
    return rows


_SPREAD = 11.0  # points: three deviations of a seed, pooled over all arms of the plan; three seeds of one arm tell too little about its own


def _smokes() -> list[Smoke]:
    """Means over the three seeds of the plan digits_lt_smokes, in percent."""
    short = {"epochs": 10}
    tokens = {"epochs": 40, "patch": 4, "lr": 0.004, "mixup": 0.0, "cutmix": 0.0}
    student = {**tokens, "repeats": 1}
    measured: tuple[tuple[str, float, Mapping[str, Any]], ...] = (
        ("plain", 68.3333, short),
        ("balanced", 79.0667, short),
        (
            "balanced-batchformer",
            82.4667,
            {**short, "batchformer": "on", "plain": 1.5, "attended": 1.5},
        ),
        ("ride", 69.2, {**short, "augment": "rotated"}),
        ("paco", 67.6667, {"epochs": 30}),
        ("paco-batchformer", 60.0667, {"epochs": 30, "batchformer": "on"}),
        ("ldam", 83.2667, {"epochs": 20, "schedule": "steps", "rho": 0.0}),
        ("ldam-sam", 72.6, {"epochs": 20, "schedule": "steps", "rho": 0.8}),
        ("livt", 48.3333, {**tokens, "pretrain_epochs": 10, "pretrain_batch": 32, "erase": 0.0}),
        (
            "deit-lt-ldam",
            55.3333,
            {**student, "teacher_epochs": 60, "teacher_rho": 0.8, "teacher_schedule": "steps"},
        ),
        (
            "deit-lt-paco",
            57.8,
            {**student, "teacher_method": "paco", "teacher_epochs": 100, "teacher_rho": 0.0},
        ),
        ("vit", 51.1333, student),
        ("vit-crt", 48.7333, {**student, "retrain_epochs": 20}),
    )
    return [
        Smoke(
            arm=arm,
            keywords={"batch": 32, **keywords},
            value=_fraction(mean),
            low=_fraction(mean - _SPREAD),
            high=_fraction(mean + _SPREAD),
        )
        for arm, mean, keywords in measured
    ]


PUBLISHED: Mapping[str, Published] = {own.name: own for own in _table()}
"""Every published row that a recipe can run, by name."""

SMOKES: Mapping[str, Smoke] = {own.arm: own for own in _smokes()}
"""What `longtail reproduce NAME --smoke` runs, by the arm of the plan that measured it."""
