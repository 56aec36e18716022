"""Ablations by name, for `longtail sweep --name`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CIFAR100 = {
    "data": "cifar100-lt",
    "seeds": (0, 1, 2),
    "with": {"imbalance": 100.0, "protocol": "paper"},
}

# Balanced Softmax's settings for CIFAR-100-LT: 591 epochs of 21 steps, 37 of them warming up from 0.05 to 0.1.
_HOU_2022 = {
    "network": ("resnet32",),
    "epochs": (591,),
    "batch": (512,),
    "warmup": (0.0626,),
    "warmup_start": (0.5,),
    "augment": ("autoaugment",),
    "ema": (0.0,),
}

_LIVT: Mapping[str, Any] = {
    "recipes": ("livt",),
    "data": "cifar100-lt",
    "seeds": (0, 1, 2),
    "first": {"mgp": {"recipe": "masked_autoencoder"}},
}

# The teachers that DeiT-LT's ablations share: trained on mild views, as the paper's, without SAM, and on the student's own views.
_TEACHERS: Mapping[str, Any] = {
    "flat": {"recipe": "ldam"},
    "sharp": {"recipe": "ldam", "set": {"rho": 0.0}},
    "strong": {
        "recipe": "ldam",
        "set": {
            "margin": 0.0,
            "defer": 1.0,
            "rho": 0.0,
            "augment": "randaugment",
            "mixup": 0.8,
            "cutmix": 1.0,
        },
    },
}
_DEIT_LT: Mapping[str, Any] = {
    "recipes": ("deit_lt",),
    "data": "cifar10-lt",
    "seeds": (0, 1, 2),
    "with": {"imbalance": 100.0},
    "first": _TEACHERS,
}
_PINNED = {"profile": "exp", "protocol": "holdout"}
_UNMIXED = {"mixup": 0.0, "cutmix": 0.0}
# In 30 epochs re-weighting needs more than the last twelfth, and three views of an image leave a batch 43 different ones.
_SHORT: Mapping[str, Any] = {"epochs": (30,), "repeats": (1,), "mix_until": (0.8,)}
_REWEIGHTED: Mapping[str, Any] = {**_SHORT, "defer": (0.8,)}

SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "plain-against-balanced": {
        "recipes": ("cross_entropy", "balanced_softmax"),
        "data": "digits-lt",
        "seeds": (0, 1, 2),
    },
    # Table 1: the baseline, Algorithm 1, and the loss of the released code with the baseline that has its scale.
    "batchformer-paper": {
        "recipes": ("balanced_softmax",),
        **_CIFAR100,
        "set": _HOU_2022,
        "each": (
            {"batchformer": "off"},
            {"batchformer": "on"},
            {"batchformer": "on", "plain": 1.5, "attended": 1.5},
            {"batchformer": "off", "loss_scale": 1.5},
        ),
    },
    # What nobody published: is it the attention, the learning of it, the scale of the loss?
    "batchformer-controls": {
        "recipes": ("balanced_softmax",),
        **_CIFAR100,
        "set": {"epochs": (30,)},
        "each": (
            {"batchformer": "off"},
            {"batchformer": "off", "loss_scale": 1.5},
            {"batchformer": "off", "loss_scale": 0.5},
            {"batchformer": "on"},
            {"batchformer": "frozen"},
            {"batchformer": "self"},
            {"batchformer": "on", "plain": 0.0, "attended": 1.0},
        ),
    },
    # Table 10 of the paper.
    "batchformer-shared-classifier": {
        "recipes": ("balanced_softmax", "ride", "paco"),
        **_CIFAR100,
        "set": {"epochs": (30,), "batchformer": ("on",)},
        "each": ({"plain": 0.5, "attended": 0.5}, {"plain": 0.0, "attended": 1.0}),
    },
    # Table 9 of the appendix.
    "batchformer-layers": {
        "recipes": ("balanced_softmax",),
        **_CIFAR100,
        "set": {"epochs": (30,), "batchformer": ("on",), "batchformer_layers": (1, 2, 4, 8, 16)},
    },
    # Table 9 of the paper: the rate follows the batch.
    "batchformer-batch": {
        "recipes": ("balanced_softmax",),
        **_CIFAR100,
        "set": {"epochs": (30,), "batchformer": ("off", "on")},
        "each": (
            {"batch": 16, "lr": 0.0125},
            {"batch": 32, "lr": 0.025},
            {"batch": 64, "lr": 0.05},
            {"batch": 128, "lr": 0.1},
            {"batch": 256, "lr": 0.2},
            {"batch": 512, "lr": 0.4},
        ),
    },
    # Table 10 of the appendix: the view that PaCo's classifier sees, and its rate, without PaCo's loss.
    "batchformer-without-paco-loss": {
        "recipes": ("balanced_softmax",),
        **_CIFAR100,
        "set": {
            "epochs": (30,),
            "augment": ("autoaugment",),
            "lr": (0.05,),
            "batchformer": ("off", "on"),
        },
    },
    # Tables 1 and 2: every baseline with and without.
    "batchformer-baselines": {
        "recipes": ("balanced_softmax", "ride", "paco"),
        **_CIFAR100,
        "set": {"epochs": (30,), "batchformer": ("off", "on")},
    },
    # LiVT's table 7, with BCE of its table 6 and the class-balanced BCE of its equation 5.
    "livt-losses": {
        **_LIVT,
        "set": {
            "pretrained": ("{mgp}",),
            "epochs": (20,),
            "loss": ("ce", "bce", "cb", "cb_bce", "ldam", "lade", "ib", "bal_ce", "bal_bce"),
        },
    },
    # Theorem 2, as released, against equation 10, as printed.
    "livt-test-prior": {
        **_LIVT,
        "set": {"pretrained": ("{mgp}",), "epochs": (20,), "test_prior": (None, "uniform")},
    },
    # Figure 3: tau times the bias of equation 10. Of theorem 2's it would also move where training begins.
    "livt-tau": {
        **_LIVT,
        "set": {
            "pretrained": ("{mgp}",),
            "epochs": (20,),
            "test_prior": ("uniform",),
            "tau": (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
        },
        "plot": {"x": "tau"},
    },
    # Figure 2.
    "livt-convergence": {
        **_LIVT,
        "set": {
            "pretrained": ("{mgp}",),
            "epochs": (20,),
            "loss": ("ce", "bal_ce", "bce", "bal_bce"),
        },
        "plot": {"x": "epoch", "lines": "loss"},
    },
    # Table 5: pretraining on long-tailed and on balanced data, equally many images, none of which is learnt from afterwards.
    "livt-transfer": {
        "recipes": ("livt",),
        "data": "cifar10-lt",
        "seeds": (0, 1, 2),
        "first": {
            # 9,754 are the images of the first, whatever flags the arms have.
            "lt": {
                "recipe": "masked_autoencoder",
                "data": "cifar100-lt",
                "with": {"imbalance": 100.0, **_PINNED},
            },
            "bal": {
                "recipe": "masked_autoencoder",
                "data": "cifar100",
                "set": {"images": 9754},
                "with": {"imbalance": None, **_PINNED},
            },
        },
        "set": {"pretrained": ("{lt}", "{bal}"), "epochs": (20,), "loss": ("ce", "bal_bce")},
        "across": ("pretraining",),
    },
    # The three transformers of table 1 on the same long-tailed data, here all with cross entropy, and with as many epochs as livt has in
    # both of its stages.
    "livt-from-scratch": {
        "recipes": ("vit_scratch", "deit3", "livt"),
        "data": "cifar100-lt",
        "seeds": (0, 1, 2),
        "set": {"loss": ("ce",)},
        "own": {
            "vit_scratch": {"epochs": 300},
            "deit3": {"epochs": 300},
            "livt": {"pretrain_epochs": 200, "epochs": 100},
        },
    },
    # DeiT-LT as it was published for CIFAR, with both teachers: ViT-B at 224 pixels, an effective batch of 1,024. Not for a CPU.
    "deit-lt-paper": {
        "recipes": ("deit_lt",),
        "data": "cifar10-lt",
        "seeds": (0, 1, 2),
        "with": {"imbalance": 100.0, "protocol": "paper"},
        "set": {
            "network": ("timm:deit_base_distilled_patch16_224",),
            "size": (224,),
            "epochs": (1200,),
            "batch": (128,),
            "accumulate": (8,),
            "lr": (1.25e-4,),
            "warmup": (0.0042,),
            "teacher_network": ("resnet32",),
            "teacher_rho": (0.8,),
            "teacher_schedule": ("steps",),
        },
        "each": (
            {"teacher_method": "ldam", "teacher_epochs": 200},
            {"teacher_method": "paco", "teacher_epochs": 400},
        ),
    },
    # Table 1: what the teacher sees. Without re-weighting; the first teacher was trained on the student's own views.
    "deit-lt-augmentation": {
        **_DEIT_LT,
        "set": {"epochs": (30,), "repeats": (1,), "defer": (1.0,)},
        "each": (
            {"teacher": "{strong}"},
            {"teacher": "{flat}", "teacher_view": "weak", **_UNMIXED},
            {"teacher": "{flat}", **_UNMIXED},
            {"teacher": "{flat}"},
        ),
    },
    # Table 5: from DeiT by out-of-distribution images, re-weighting and a flat teacher to DeiT-LT.
    "deit-lt-components": {
        **_DEIT_LT,
        "set": _SHORT,
        "each": (
            {"teacher": "{strong}", "defer": 1.0},
            {"teacher": "{sharp}", "defer": 1.0},
            {"teacher": "{sharp}", "defer": 0.8},
            {"teacher": "{flat}", "defer": 0.8},
        ),
    },
    # Table 6, at 32 pixels; the paper's are timm:deit_tiny, deit_small and deit_base_distilled_patch16_224 at 224.
    "deit-lt-students": {
        **_DEIT_LT,
        "set": {**_REWEIGHTED, "teacher": ("{flat}",), "network": ("vit_mini", "vit_tiny")},
    },
    # Table 2.
    "deit-lt-baselines": {
        "recipes": ("vit", "vit_crt", "deit", "deit3", "deit_lt"),
        "data": "cifar10-lt",
        "seeds": (0, 1, 2),
        "with": {"imbalance": 100.0},
        "set": {"epochs": (30,)},
        "own": {
            "vit": {"repeats": 1, "mix_until": 0.8},
            "vit_crt": {"repeats": 1, "mix_until": 0.8},
            "deit": {"repeats": 1},
            "deit_lt": {"repeats": 1, "mix_until": 0.8, "defer": 0.8},
        },
    },
    # Figure S.5: does a student of a flat teacher learn faster?
    "deit-lt-convergence": {
        **_DEIT_LT,
        "set": {**_REWEIGHTED, "teacher_rho": (0.0, 0.1)},
        "plot": {"x": "epoch", "lines": "teacher_rho"},
    },
    # Beyond the paper: from some point of training on, the distillation token learns the labels more and more.
    "deit-lt-release": {
        **_DEIT_LT,
        "set": {**_REWEIGHTED, "teacher": ("{flat}",), "release": (None, 0.75, 0.5, 0.25)},
    },
}
"""Ablations by name, run by `longtail sweep --name`: `recipes`, `data`, `seeds`, `set` (keyword -> values, in every combination),
`each` (keywords that change together), `own` (keywords of one recipe alone) and `with` (data flags). Runs under `first`, one for each
seed, come before: a keyword of the value "{name}" is the folder of that one. `across` lets a field of the comparison differ; `plot` draws
accuracy over a keyword or the epochs."""
