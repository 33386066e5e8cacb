"""What outcomes do to the odds of the next draft."""

from headway.engine.acceptance import Acceptance


def test_new_places_and_confirmed_ones_are_counted_apart() -> None:
    acceptance = Acceptance()
    before = acceptance.odds(certain=False)
    assert before.first < before.further
    for _ in range(5):
        acceptance.note(4, 0, certain=False)
    assert acceptance.odds(certain=False).first < before.first / 2
    assert acceptance.odds(certain=True) == (before.further, before.further)


def test_a_draft_that_was_right_for_a_while_counts_for_both() -> None:
    acceptance = Acceptance()
    before = acceptance.odds(certain=False)
    acceptance.note(4, 4, certain=False)
    after = acceptance.odds(certain=False)
    assert after.first > before.first
    assert after.further > before.further
    acceptance.note(4, 1, certain=True)
    assert acceptance.odds(certain=True).first < after.further


def test_what_failed_long_ago_is_worth_a_try_again() -> None:
    acceptance = Acceptance()
    fresh = acceptance.odds(certain=False).first
    for _ in range(10):
        acceptance.note(1, 0, certain=False)
    failed = acceptance.odds(certain=False).first
    for _ in range(300):
        acceptance.fade()
    assert failed < 0.1
    assert fresh - acceptance.odds(certain=False).first < 0.1


def test_nothing_drafted_tells_nothing() -> None:
    acceptance = Acceptance()
    before = acceptance.odds(certain=True)
    acceptance.note(0, 0, certain=True)
    assert acceptance.odds(certain=True) == before
