"""What came of tries at passwords: counted for `/metrics`, and one log line each.

What was typed is in none of them, since people type passwords into the name field: a line has the
request id, the outcome, the address, and a part of the key of the identifier's counter, which is
the same for all tries at one name. An account is named once a try has proved to be its owner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fw_actors.actors.counters import Counter
from fw_actors.errors import AuthenticationError, FwError, OverloadedError, TooManyRequestsError
from fw_actors.runtime import Log
from fw_actors.services.access import PasswordChange, PasswordChanged, SignedIn, SignInAttempt
from fw_actors.services.attempts import shown_key

_OUTCOMES: Final[Mapping[type, str]] = {
    SignedIn: "signed_in",
    PasswordChanged: "changed",
    AuthenticationError: "wrong",
    TooManyRequestsError: "throttled",
    OverloadedError: "overloaded",
}


class TryLog:
    """Told of each try once, by whoever decides it: also when nobody waits for the answer."""

    def __init__(self, outcomes: Counter, log: Log) -> None:
        """`outcomes` counts sign-ins."""
        self._outcomes, self._log = outcomes, log

    def sign_in(self, answer: SignedIn | FwError, attempt: SignInAttempt, counter: bytes) -> None:
        """Take note of a try to sign in, at the identifier with the key `counter`."""
        fields = {"address": attempt.address, "counter": shown_key(counter)}
        if isinstance(answer, SignedIn):
            fields["user"] = answer.user
        self._sign_in(answer, attempt.request_id, fields)

    def address_refused(self, refusal: FwError, address: str, request_id: str) -> None:
        """Take note of a try to sign in that its address is refused."""
        self._sign_in(refusal, request_id, {"address": address})

    def change(self, answer: PasswordChanged | FwError, change: PasswordChange) -> None:
        """Take note of a try to change the own password."""
        self._log.info(
            "password_change.ended",
            request_id=change.request_id,
            outcome=_outcome(answer),
            user=change.user,
        )

    def _sign_in(self, answer: object, request_id: str, fields: Mapping[str, str]) -> None:
        outcome = _outcome(answer)
        self._outcomes.add(outcome)
        self._log.info("sign_in.ended", request_id=request_id, outcome=outcome, **fields)


def _outcome(answer: object) -> str:
    return _OUTCOMES.get(type(answer), "refused")
