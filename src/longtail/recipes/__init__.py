"""One file per paper. Names here, code there: reading this page imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECIPES: Mapping[str, str] = {
    "cross_entropy": "longtail.recipes.supervised:cross_entropy",
    "balanced_softmax": "longtail.recipes.supervised:balanced_softmax",
    "logit_adjustment": "longtail.recipes.supervised:balanced_softmax",
}
"""Every recipe by name. Two names for one function are one recipe, known by the function's name."""

CITATIONS: Mapping[str, tuple[str, ...]] = {
    "balanced_softmax": (
        """@inproceedings{ren2020balanced,
  title = {Balanced Meta-Softmax for Long-Tailed Visual Recognition},
  author = {Ren, Jiawei and Yu, Cunjun and Sheng, Shunan and Ma, Xiao and Zhao, Haiyu and Yi, Shuai and Li, Hongsheng},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2020}
}""",
        """@inproceedings{menon2021longtail,
  title = {Long-tail learning via logit adjustment},
  author = {Menon, Aditya Krishna and Jayasumana, Sadeep and Rawat, Ankit Singh and Jain, Himanshu and Veit, Andreas and Kumar, Sanjiv},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}""",
    ),
}
"""What to cite for a recipe, as BibTeX."""

SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "plain-against-balanced": {"recipes": ("cross_entropy", "balanced_softmax"), "data": "digits-lt", "seeds": (0, 1, 2)},
}
"""Ablations by name: `recipes`, `data`, `seeds`, `set` (keyword -> values) and `with` (data flags); `longtail sweep --name` runs them."""
