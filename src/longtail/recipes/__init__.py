"""One file per paper. Names here, code there: reading this page imports nothing."""

from __future__ import annotations

from collections.abc import Mapping

RECIPES: Mapping[str, str] = {
    "cross_entropy": "longtail.recipes.supervised:cross_entropy",
    "balanced_softmax": "longtail.recipes.supervised:balanced_softmax",
    "logit_adjustment": "longtail.recipes.supervised:balanced_softmax",
    "ride": "longtail.recipes.ride:ride",
    "paco": "longtail.recipes.paco:paco",
    "livt": "longtail.recipes.livt:livt",
    "masked_autoencoder": "longtail.recipes.masked_autoencoder:masked_autoencoder",
    "vit_scratch": "longtail.recipes.livt_baselines:vit_scratch",
    "deit3": "longtail.recipes.livt_baselines:deit3",
    "deit_lt": "longtail.recipes.deit_lt:deit_lt",
    "ldam": "longtail.recipes.ldam:ldam",
    "deit": "longtail.recipes.deit_lt:deit",
    "ce_gzsl": "longtail.recipes.ce_gzsl:ce_gzsl",
    "eszsl": "longtail.recipes.eszsl:eszsl",
    "vit": "longtail.recipes.vit:vit",
    "vit_crt": "longtail.recipes.vit:vit_crt",
    "cge": "longtail.recipes.cge:cge",
    "compcos": "longtail.recipes.compcos:compcos",
    "attribute_object": "longtail.recipes.attribute_object:attribute_object",
    "erm": "longtail.recipes.domains:erm",
    "coral": "longtail.recipes.domains:coral",
    "irm": "longtail.recipes.domains:irm",
    "vrex": "longtail.recipes.domains:vrex",
    "mixstyle": "longtail.recipes.domains:mixstyle",
    "swad": "longtail.recipes.domains:swad",
    "mdd": "longtail.recipes.mdd:mdd",
    "moco_v2": "longtail.recipes.moco:moco_v2",
    "moco_v3": "longtail.recipes.moco:moco_v3",
}
"""Every recipe by name. Two names for one function are one recipe, known by the function's name."""
