import pytest
import torch

from longtail.nn import PassThrough, Stream, Streamed


def test_no_neck_is_one_stream_of_all_rows() -> None:
    features, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    streamed = PassThrough()(features, target)
    assert streamed.features is features
    assert streamed.aligned == (target,)
    assert streamed.rows.tolist() == [1.0, 1.0, 1.0]


def test_no_neck_may_scale_the_loss() -> None:
    assert PassThrough(1.5)(torch.randn(3, 4)).rows.tolist() == [1.5] * 3
    with pytest.raises(ValueError, match="must be positive, got 0"):
        PassThrough(0.0)


def test_rows_give_the_weighted_sum_of_the_means() -> None:
    values = torch.tensor([1.0, 2.0, 10.0, 20.0, 30.0, 40.0])
    streams = {"a": Stream(slice(0, 2), 1.5), "b": Stream(slice(2, 6), 0.25)}
    rows = Streamed(values[:, None], streams, ()).rows
    assert (rows * values).mean() == 1.5 * values[:2].mean() + 0.25 * values[2:].mean()


def test_streams_become_terms_and_those_of_no_weight_notes() -> None:
    streams = {"plain": Stream(slice(0, 2), 0.0), "attended": Stream(slice(2, 4), 0.5)}
    losses = {"plain": torch.tensor(2.0, requires_grad=True), "attended": torch.tensor(3.0)}
    terms, notes = Streamed(torch.zeros(4, 8), streams, ()).weighted(losses)
    assert terms == {"attended": 1.5}
    assert notes == {"plain": 2.0}
    assert not notes["plain"].requires_grad
