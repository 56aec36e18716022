"""Groups of classes, and how a record stores them."""

import json

from longtail.records.groups import Groups


def test_groups_are_read_back_from_json() -> None:
    groups = Groups("ranks: 2/0/1", {"many": (0, 2), "medium": (), "few": (1,)})
    content = json.loads(json.dumps(groups.to_json()))
    assert content == {
        "rule": "ranks: 2/0/1",
        "members": {"many": [0, 2], "medium": [], "few": [1]},
    }
    assert Groups.from_json(content) == groups
    assert [*Groups.from_json(content).members] == ["many", "medium", "few"]
