"""The table of a reference's transitions, and that tests look into it."""

from __future__ import annotations

import pytest

from homing.broker.core.lifecycle import TRANSITIONS, check
from homing.broker.core.message import Where
from tests.model.life import Life


def test_each_state_has_a_row_and_what_is_gone_stays_gone() -> None:
    assert set(TRANSITIONS) == set(Where)
    assert not TRANSITIONS[Where.GONE]
    with pytest.raises(ValueError, match="GONE cannot become PENDING"):
        check(Where.GONE, Where.PENDING)


@pytest.mark.plain
def test_what_is_not_in_the_table_fails_where_it_is_done() -> None:
    life = Life()
    life.send(life.client(), "a", "one")
    (reference,) = life.queue("a").references.values()
    with pytest.raises(ValueError, match="PENDING cannot become PARKED"):
        reference.where = Where.PARKED
    assert life.queue("a").ready == 1
