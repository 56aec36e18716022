"""Classes by how often they occur in training: many, medium and few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Groups:
    """Classes grouped by how often they occur in training, and the rule of the grouping.

    >>> groups = Groups("ranks: 1/0/1", {"many": (0,), "medium": (), "few": (1,)})
    >>> Groups.from_json(groups.to_json()) == groups
    True
    """

    rule: str  # "threshold: many > 100, few < 20" or "ranks: 3/4/3"
    members: Mapping[str, tuple[int, ...]]  # "many", "medium", "few" -> class indices

    def to_json(self) -> dict[str, Any]:
        """The groups as a record stores them."""
        members = {name: list(classes) for name, classes in self.members.items()}
        return {"rule": self.rule, "members": members}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Groups:
        """Read groups that `to_json` wrote."""
        members = {name: tuple(classes) for name, classes in content["members"].items()}
        return cls(content["rule"], members)
