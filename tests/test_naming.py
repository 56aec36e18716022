"""Names that nobody knows: what is said instead."""

from longtail.naming import meant, unknown


def test_an_unknown_name_gets_the_known_and_the_closest() -> None:
    said = str(unknown("dataset", "cifar100lt", ["digits-lt", "cifar100-lt"], more="; or a folder"))
    assert (
        said
        == "unknown dataset 'cifar100lt': did you mean cifar100-lt? Known: cifar100-lt, digits-lt; or a folder"
    )


def test_nothing_is_guessed_where_nothing_is_close() -> None:
    assert meant("zzz", ["digits-lt"]) == ""
    assert str(unknown("head", "zzz", [])) == "unknown head 'zzz'. Known: none"


def test_no_more_guesses_than_asked_for() -> None:
    assert meant("livt", ["livt1", "livt2", "livt3"], most=2).count("livt") == 2
