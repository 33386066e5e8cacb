import pytest

from headway.engine.sequence import TRANSITIONS, IllegalMove, Move, Sequence, State
from headway.kv.prefix_cache import PrefixChain
from support.engine_on_fake import make_request


def fresh(length: int = 5, block_size: int = 4) -> Sequence:
    return Sequence(make_request("r", range(length)), 0, 0, PrefixChain(("", 0), block_size))


def in_state(state: State) -> Sequence:
    sequence = fresh()
    if state in (State.PREFILL, State.DECODE):
        sequence.admit(0)
    if state is State.RESTORING:
        sequence.admit(0, restores=True)
    if state is State.DECODE:
        sequence.advance(5, [9])
    if state is State.FINISHED:
        sequence.finish()
    assert sequence.state is state
    return sequence


def test_the_table_covers_every_state_and_nothing_leaves_finished() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.FINISHED}
    assert set(TRANSITIONS.values()) == set(State)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("move", [Move.ADMIT, Move.RESTORE, Move.RESTORED, Move.PREEMPT, Move.FINISH])
def test_every_move_follows_the_table_or_raises(state: State, move: Move) -> None:
    sequence = in_state(state)
    moves = {
        Move.ADMIT: lambda: sequence.admit(0),
        Move.RESTORE: lambda: sequence.admit(0, restores=True),
        Move.RESTORED: lambda: sequence.restored(1),
        Move.PREEMPT: sequence.preempt,
        Move.FINISH: sequence.finish,
    }
    target = TRANSITIONS.get((state, move))
    if target is None:
        with pytest.raises(IllegalMove, match=state.value):
            moves[move]()
        assert sequence.state is state
    else:
        moves[move]()
        assert sequence.state is target


def test_what_is_restored_need_not_be_computed() -> None:
    sequence = fresh(9)
    sequence.admit(1, restores=True)
    assert (sequence.is_restoring, sequence.is_decoding, sequence.num_computed) == (True, False, 4)
    with pytest.raises(IllegalMove, match="cannot advance"):
        sequence.advance(1, [])
    sequence.restored(1)
    assert (sequence.is_restoring, sequence.num_computed, sequence.num_shared) == (False, 8, 1)
    sequence.advance(1, [7])
    assert sequence.state is State.DECODE


def test_a_prompt_is_computed_in_chunks_then_decodes() -> None:
    sequence = fresh()
    sequence.admit(0)
    sequence.advance(3, [])
    assert (sequence.num_computed, sequence.state) == (3, State.PREFILL)
    sequence.advance(2, [7])
    assert (sequence.num_computed, sequence.num_tokens, sequence.state) == (5, 6, State.DECODE)


def test_it_advances_by_a_list() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(1, [7, 8, 9])
    assert list(sequence.tokens) == [0, 1, 2, 3, 4, 9, 7, 8, 9]
    assert sequence.num_output == 4
    assert sequence.num_computed == 6


def test_accepted_drafts_are_computed_already() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(3, [7, 8, 9])
    assert (sequence.num_computed, sequence.num_tokens) == (8, 9)
    with pytest.raises(IllegalMove, match="more tokens"):
        sequence.advance(4, [1, 2, 3])


def test_nothing_is_drawn_before_everything_is_computed() -> None:
    sequence = fresh()
    sequence.admit(0)
    with pytest.raises(IllegalMove, match="before all tokens"):
        sequence.advance(4, [7])


def test_no_more_is_computed_than_there_is() -> None:
    sequence = fresh()
    sequence.admit(0)
    with pytest.raises(IllegalMove, match="more tokens"):
        sequence.advance(6, [])


@pytest.mark.parametrize("state", [State.WAITING, State.FINISHED])
def test_only_what_runs_advances(state: State) -> None:
    with pytest.raises(IllegalMove, match="cannot advance"):
        in_state(state).advance(1, [])


def test_it_starts_behind_cached_blocks() -> None:
    sequence = fresh(9)
    sequence.admit(2)
    assert (sequence.num_computed, sequence.num_shared) == (8, 2)


def test_truncate_takes_back_what_was_generated() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(1, [7, 8, 9])
    sequence.truncate(7)
    assert list(sequence.tokens) == [0, 1, 2, 3, 4, 9, 7]
    assert sequence.num_computed == 6
    sequence.advance(1, [5])
    assert sequence.num_tokens == 8


@pytest.mark.parametrize("num_tokens", [4, 9])
def test_truncate_neither_cuts_the_prompt_nor_lengthens(num_tokens: int) -> None:
    sequence = in_state(State.DECODE)
    with pytest.raises(IllegalMove, match="cannot be cut"):
        sequence.truncate(num_tokens)


def test_truncate_never_cuts_what_others_may_share() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(1, [7, 8, 9])
    sequence.num_shared = 2
    with pytest.raises(IllegalMove, match="cannot be cut to 7"):
        sequence.truncate(7)


def test_truncate_forgets_the_keys_of_lost_blocks() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(1, [7, 8])
    sequence.preempt()
    assert len(sequence.keys) == 2
    sequence.truncate(7)
    assert len(sequence.keys) == 1


def test_preemption_keeps_every_token_and_names_the_blocks_to_find_again() -> None:
    sequence = in_state(State.DECODE)
    sequence.advance(1, [7, 8])
    sequence.num_shared = 1
    sequence.preempt()
    assert list(sequence.tokens) == [0, 1, 2, 3, 4, 9, 7, 8]
    assert (sequence.num_computed, sequence.num_shared, len(sequence.keys)) == (0, 0, 2)
