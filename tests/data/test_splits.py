from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.data.images.stores import ArrayImages
from longtail.data.request import Profile
from longtail.data.source import Rows
from longtail.data.splits import (
    held_out,
    hold_out,
    natural_groups,
    rank_groups,
    shared,
    split_hash,
    tail_counts,
    tail_rows,
    threshold_groups,
)


def rows(labels: list[int], content: list[int] | None = None) -> Rows:
    content = list(range(len(labels))) if content is None else content
    digests = tuple(sha256(str(c).encode()).digest() for c in content)
    return Rows(
        ArrayImages(torch.zeros((len(labels), 3, 2, 2), dtype=torch.uint8)),
        np.array(labels),
        tuple(map(str, content)),
        digests,
    )


@pytest.mark.parametrize(
    ("classes", "totals"),
    [
        (10, {10: 20431, 20: 17023, 50: 13996, 100: 12406, 200: 11203}),
        (100, {10: 19573, 20: 15907, 50: 12608, 100: 10847, 200: 9502}),
    ],
)
def test_counts_are_the_fields(classes: int, totals: dict[int, int]) -> None:
    largest = 50_000 / classes
    assert {
        imbalance: sum(tail_counts(largest, classes, imbalance=imbalance)) for imbalance in totals
    } == totals
    for imbalance in totals:
        assert tail_counts(largest, classes, imbalance=imbalance)[-1] == int(largest / imbalance)


@pytest.mark.parametrize("profile", ["exp", "step", "pareto"])
def test_every_profile_keeps_its_ends_and_falls(profile: Profile) -> None:
    counts = tail_counts(500, 100, imbalance=50, profile=profile)
    assert (counts[0], counts[-1]) == (500, 10)
    assert counts == sorted(counts, reverse=True)


def test_pareto_is_steep_first_and_flat_last() -> None:
    pareto, exp = (
        tail_counts(5000, 100, imbalance=100, profile="pareto"),
        tail_counts(5000, 100, imbalance=100),
    )
    assert pareto[5] / pareto[0] < 0.5 < exp[5] / exp[0]
    assert sum(pareto) < sum(exp)


def test_a_cut_that_empties_a_class_or_grows_is_refused() -> None:
    with pytest.raises(ValueError, match="Use at most 500"):
        tail_counts(500, 100, imbalance=501)
    for imbalance in (0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected an imbalance of at least 1"):
            tail_counts(500, 100, imbalance=imbalance)
    with pytest.raises(ValueError, match="exp, step or pareto"):
        tail_counts(500, 100, imbalance=10, profile="linear")  # type: ignore[arg-type]


def published_cut(target: NDArray[np.int64], classes: int, imbalance: float) -> list[int]:
    """Cao et al. 2019, as their protocol is written down, with numpy's global generator."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    chosen: list[int] = []
    for label in np.unique(target):
        amount = int(len(target) / classes * ((1 / imbalance) ** (label / (classes - 1.0))))
        where = np.where(target == label)[0]
        np.random.shuffle(where)  # noqa: NPY002
        chosen.extend(where[:amount].tolist())
    np.random.set_state(state)  # noqa: NPY002
    return chosen


def test_rows_are_the_fields_to_the_index() -> None:
    target = np.random.default_rng(3).permutation(np.repeat(np.arange(10), 200))
    for imbalance in (10, 50, 100):
        ours = tail_rows(target, tail_counts(200, 10, imbalance=imbalance))
        assert ours.tolist() == published_cut(target, 10, imbalance)


def test_the_stream_is_numpys_legacy_one() -> None:
    # pinned, so that neither numpy nor we can change everybody's images
    assert tail_rows(np.arange(30) % 3, [5, 3, 2]).tolist() == [6, 24, 12, 27, 3, 10, 16, 4, 8, 11]


def test_higher_imbalance_is_nested_in_lower() -> None:
    target = np.random.default_rng(4).permutation(np.repeat(np.arange(10), 500))
    cuts = [
        set(tail_rows(target, tail_counts(500, 10, imbalance=imbalance)).tolist())
        for imbalance in (10, 50, 100, 200)
    ]
    assert cuts[0] > cuts[1] > cuts[2] > cuts[3]


@given(st.integers(0, 3000), st.sampled_from([5, 10]))
def test_a_class_always_keeps_training_images(n: int, share: int) -> None:
    out = held_out(n, share=share)
    assert 0 <= out < max(n, 1)
    assert (out > 0) == (n >= 5)
    assert abs(out - n / share) <= 1


def test_holdout_is_per_class_and_a_partition() -> None:
    labels = [0] * 100 + [1] * 36 + [2] * 5 + [3] * 4 + [4]
    stay, out = hold_out(rows(labels), "abcde", share=10, seed=0, purpose="val")
    assert np.bincount(out.target, minlength=5).tolist() == [10, 4, 1, 0, 0]
    assert sorted([*map(int, stay.ids), *map(int, out.ids)]) == list(range(len(labels)))
    assert len(stay.inputs) == len(stay.digests) == len(stay)


def test_holdout_depends_on_seed_and_purpose_but_on_no_order() -> None:
    labels = [0] * 40 + [1] * 40
    out = {
        int(i) for i in hold_out(rows(labels), ["a", "b"], share=5, seed=0, purpose="val")[1].ids
    }
    # Rows and classes the other way round
    turned = rows([1 - label for label in labels[::-1]], list(range(80))[::-1])
    assert {
        int(i) for i in hold_out(turned, ["b", "a"], share=5, seed=0, purpose="val")[1].ids
    } == out
    assert {
        int(i) for i in hold_out(rows(labels), ["a", "b"], share=5, seed=1, purpose="val")[1].ids
    } != out
    assert {
        int(i) for i in hold_out(rows(labels), ["a", "b"], share=5, seed=0, purpose="test")[1].ids
    } != out


def test_groups_are_the_fields() -> None:
    assert threshold_groups([101, 100, 20, 19]).members == {
        "many": (0,),
        "medium": (1, 2),
        "few": (3,),
    }
    sizes = [
        len(part)
        for part in threshold_groups(tail_counts(500, 100, imbalance=100)).members.values()
    ]
    assert sizes == [35, 35, 30]
    groups = rank_groups(tail_counts(5000, 10, imbalance=100), (3, 4, 3))
    assert groups.members == {"many": (0, 1, 2), "medium": (3, 4, 5, 6), "few": (7, 8, 9)}
    assert groups.rule == "ranks: 3/4/3"
    with pytest.raises(ValueError, match="sum to 3"):
        rank_groups([1, 2, 3], (1, 1, 2))


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30))
def test_natural_groups_hold_every_class_once(counts: list[int]) -> None:
    groups = natural_groups(counts)
    assert sorted(i for part in groups.members.values() for i in part) == list(range(len(counts)))
    assert list(groups.members) == ["many", "medium", "few"]
    if groups.rule.startswith("ranks") and len(counts) > 1:
        assert min(counts[i] for i in groups.members["many"]) >= max(
            counts[i] for i in groups.members["few"]
        )


def test_equal_classes_are_not_ranked() -> None:
    assert natural_groups([300, 300, 300]).rule.startswith("threshold")


def test_the_hash_sees_content_label_and_split_but_no_order_or_name() -> None:
    one = rows([0, 0, 1], [5, 6, 7])
    first = split_hash({"train": one, "test": rows([0], [8])})
    assert split_hash({"test": rows([0], [8]), "train": rows([1, 0, 0], [7, 6, 5])}) == first
    others = [
        split_hash({"train": rows([0, 1, 1], [5, 6, 7]), "test": rows([0], [8])}),
        split_hash({"train": rows([0, 0, 1], [5, 6, 9]), "test": rows([0], [8])}),
        split_hash({"train": rows([0, 0, 1, 0], [5, 6, 7, 8]), "test": rows([])}),
    ]
    assert len({first, *others}) == 4


def test_shared_images_are_counted_and_shown() -> None:
    assert shared(rows([0, 1], [1, 2]), rows([0], [3])) is None
    assert (
        shared(rows([0, 1], [1, 2]), rows([0, 0], [2, 3]))
        == "1 test images are also in training (same content): 2 = 2."
    )


def test_rows_with_domains_are_held_out_class_by_class_and_domain_by_domain() -> None:
    pixels = torch.zeros((60, 3, 2, 2), dtype=torch.uint8)
    digests = tuple(bytes([row]) * 32 for row in range(60))
    target, domain = np.arange(60) % 2, np.arange(60) // 2 % 3
    ids = tuple(map(str, range(60)))
    plain = Rows(ArrayImages(pixels), target, ids, digests)
    rows = replace(plain, columns={"domain": domain})
    stay, out = hold_out(rows, "ab", share=5, seed=0, purpose="val", domains="xyz")
    strata = [*zip(out.target.tolist(), out.columns["domain"].tolist(), strict=True)]
    assert sorted(strata) == [(a, b) for a in range(2) for b in range(3) for _ in range(2)]
    assert len(stay) + len(out) == 60
    other = replace(plain, columns={"domain": 2 - domain})  # the same domains in another order
    repeated = hold_out(other, "ab", share=5, seed=0, purpose="val", domains="zyx")[1]
    assert {*repeated.ids} == {*out.ids}
    assert {*hold_out(plain, "ab", share=5, seed=0, purpose="val")[1].ids} != {*out.ids}


def test_columns_categories_and_class_attributes_are_in_the_hash_only_where_there_are_some() -> (
    None
):
    pixels = torch.zeros((4, 3, 2, 2), dtype=torch.uint8)
    digests = tuple(bytes([row]) * 32 for row in range(4))
    rows = Rows(ArrayImages(pixels), np.array([0, 1, 0, 1]), tuple("abcd"), digests)
    # As before there were columns, written out.
    parts = [b"train" + digests[row] + (row % 2).to_bytes(4) for row in range(4)]
    plain = sha256(b"".join(sorted(parts))).hexdigest()
    assert split_hash({"train": rows}) == plain
    assert split_hash({"train": rows}, categories={}, class_attributes={}) == plain
    domain = np.array([0, 1, 1, 0])
    with_domain = split_hash({"train": replace(rows, columns={"domain": domain})})
    vector = {"vector": np.ones((2, 3), np.float32)}
    hashes = {
        plain,
        with_domain,
        split_hash({"train": replace(rows, columns={"domain": 1 - domain})}),
        split_hash({"train": replace(rows, columns={"place": domain})}),
        split_hash({"train": rows}, categories={"domain": ("a", "b")}),
        split_hash({"train": rows}, class_attributes=vector),
        split_hash({"train": rows}, class_attributes={"vector": 2 * vector["vector"]}),
    }
    assert len(hashes) == 7
    narrow = replace(rows, columns={"domain": domain.astype(np.int32)})
    assert split_hash({"train": narrow}) == with_domain
    order = np.array([3, 1, 0, 2])
    assert (
        split_hash({"train": replace(rows, columns={"domain": domain}).take(order)}) == with_domain
    )
