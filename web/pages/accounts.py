"""Adds the states of accounts, and the possible actions, to the list and the pages of users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement

from fw_actors.access.administration import AccountCondition, AccountState, AccountStates
from fw_actors.errors import BadRequestError, PermissionDeniedError
from fw_actors.rules.safe_output import counted
from web.pages.listing import (
    BAD,
    GOOD,
    PLAIN,
    WARN,
    FilterChoice,
    ListCell,
    ListColumn,
    ListFilter,
    Listing,
    ListRow,
)
from web.pages.wording import time_or_empty

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

_TONES: Final[Mapping[AccountCondition, str]] = {
    AccountCondition.ACTIVE: GOOD,
    AccountCondition.LOCKED: BAD,
    AccountCondition.INVITED: WARN,
    AccountCondition.NO_PASSWORD: WARN,
    AccountCondition.DISABLED: PLAIN,
}
STATE: Final = "_state"
"""The query parameter for a state."""
_NOTHING: Final = ListCell("text", "")


@dataclass(frozen=True)
class ShownAccount:
    """The state of an account as shown on its page, and the actions that apply to it."""

    condition: ListCell
    invited_until: str
    locked_until: str
    last_sign_in: str
    sessions: str
    """The numbers of sessions and API keys in words; empty without any."""
    is_own: bool
    may_resend: bool
    may_reset: bool


def state_conditions(
    fw: Fw, states: AccountStates, doctype: str, query: Mapping[str, str]
) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for the state in the query of the list of accounts.

    Raises: BadRequestError for an unknown state; PermissionDeniedError without permission.
    """
    state = query.get(STATE, "")
    if doctype != "User" or not state:
        return ()
    if not fw.rights.administers:
        raise PermissionDeniedError("Only System Managers may filter accounts by state.")
    if state not in list(AccountCondition):
        states_in_words = ", ".join(AccountCondition)
        raise BadRequestError(f"{STATE} must be one of {states_in_words}.", field=STATE)
    return states.conditions(fw.tx, AccountCondition(state))


def account_view(fw: Fw, states: AccountStates, name: str) -> dict[str, Any]:
    """Return the further variables of a User's page, without an account hidden from the user."""
    state = states.of(fw.tx, [name]).get(name) if fw.rights.administers else None
    return {"account": None if state is None else _shown(state, fw.user)}


def _shown(state: AccountState, user: str) -> ShownAccount:
    return ShownAccount(
        condition=_badge(state),
        invited_until=time_or_empty(state.invited_until),
        locked_until=time_or_empty(state.locked_until),
        last_sign_in=time_or_empty(state.last_sign_in),
        sessions=in_words(state),
        is_own=state.user == user,
        may_resend=state.enabled and not state.has_password,
        may_reset=state.enabled and state.has_password,
    )


def in_words(state: AccountState) -> str:
    """Return `2 sessions and 1 API key`; empty without any."""
    counts = ((state.sessions, "session"), (state.keys, "API key"))
    return " and ".join(counted(n, noun) for n, noun in counts if n)


def with_account_states(
    fw: Fw, users: Listing, states: AccountStates, query: Mapping[str, str]
) -> Listing:
    """Return the list of Users with their states, roles and last sign-ins."""
    if not fw.rights.administers:
        return users
    states_by_name = states.of(fw.tx, [row.name for row in users.rows])
    index = [column.name for column in users.columns].index("enabled")  # the state shows it too
    added = (
        ListColumn("state", "State", "", "none", "text"),
        ListColumn("roles", "Roles", "", "none", "text"),
        ListColumn("last_sign_in", "Last sign-in", "", "none", "time"),
        ListColumn("sessions", "Sessions", "", "none", "number"),
    )

    def row_of(row: ListRow) -> ListRow:
        cells = _cells(states_by_name.get(row.name))
        return replace(row, cells=(*row.cells[:index], *cells, *row.cells[index + 1 :]))

    columns = (*users.columns[:index], *added, *users.columns[index + 1 :])
    return replace(
        users,
        columns=columns,
        rows=tuple(map(row_of, users.rows)),
        filters=(_state_filter(query.get(STATE, "")), *users.filters),
    )


def _state_filter(chosen: str) -> ListFilter:
    choices = (
        FilterChoice(each.value, each.value.capitalize(), each == chosen)
        for each in AccountCondition
    )
    return ListFilter(STATE, "State", chosen, tuple(choices))


def _cells(state: AccountState | None) -> tuple[ListCell, ...]:
    if state is None:
        return (_NOTHING,) * 4
    last = time_or_empty(state.last_sign_in)
    return (
        _badge(state),
        ListCell("text", ", ".join(state.roles)),
        ListCell("time", last) if last else _NOTHING,
        ListCell("number", str(state.sessions)),
    )


def _badge(state: AccountState) -> ListCell:
    return ListCell("badge", state.condition.value, _TONES[state.condition])
