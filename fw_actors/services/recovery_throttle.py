"""Who may ask the public recovery routes, and how often: by address, and by typed identifier.

Source: interface §2 "Address throttle"; pitfalls, Recovery: an identifier is counted as typed,
known or not, or the limit itself would tell which accounts there are.
"""

from __future__ import annotations

from typing import Final

from fw_actors.config import AuthPolicy
from fw_actors.rules.addresses import counted_address
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, RECOVERY_MAIL_WINDOW_MS, Budget
from fw_actors.rules.tokens import digest, record_id
from fw_actors.runtime import Entropy
from fw_actors.services import attempts
from fw_actors.store import Tx

MAILS_AN_HOUR: Final = 3
_ID_BYTES: Final = 12
_MAILS: Final = Budget(MAILS_AN_HOUR, RECOVERY_MAIL_WINDOW_MS, locks=False)


class RecoveryThrottle:
    """Counts requests, whatever comes of them. Plain, inside a transaction."""

    def __init__(self, policy: AuthPolicy, entropy: Entropy, installation_key: bytes) -> None:
        self._addresses = Budget(policy.recovery_attempts, ADDRESS_WINDOW_MS, locks=False)
        self._entropy, self._key = entropy, installation_key

    def count_address(self, tx: Tx, address: str) -> float | None:
        """Count a request of an address. Returns None, or the seconds to wait."""
        return self._count(tx, self._address_key(address), self._addresses)

    def address_wait(self, tx: Tx, address: str) -> float | None:
        """Return the seconds an address has to wait, or None; reads only."""
        return attempts.wait_of(tx, self._address_key(address), self._addresses)

    def count_mail(self, tx: Tx, identifier: str | None, typed: str) -> float | None:
        """Count a mail to a canonical identifier, or to what has no such form.

        Returns None, or the seconds to wait.
        """
        text = f"identifier {identifier}" if identifier is not None else digest(typed).hex()
        return self._count(tx, attempts.counter_key(self._key, "recovery mail", text), _MAILS)

    def _address_key(self, address: str) -> bytes:
        return attempts.counter_key(self._key, "recovery address", counted_address(address))

    def _count(self, tx: Tx, key: bytes, budget: Budget) -> float | None:
        charge = record_id(self._entropy.bytes(_ID_BYTES))
        wait = attempts.charge(tx, charge, key, budget)
        if wait is None:
            attempts.settle_failure(tx, charge, key, budget)  # nothing takes it back
        return wait
