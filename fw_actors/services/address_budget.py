"""The budget of failed sign-ins that an address has, and the networks around it.

An IPv6 client may have 65,536 networks of /64 to itself (a /48), so tries from all of one /56 and
/48 are counted together as well, with wider budgets; an IPv4 address is counted alone.
Source: interface §2 "Address throttle".
"""

from __future__ import annotations

from dataclasses import dataclass

from fw_actors.rules.addresses import counted_address, wider_networks
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, Budget
from fw_actors.services import attempts
from fw_actors.services.attempts import Networks
from fw_actors.store import Tx


@dataclass(frozen=True, slots=True)
class AddressCounters:
    """The counters that a try from an address is charged to."""

    key: bytes
    networks: Networks | None

    @property
    def widest(self) -> bytes:
        """The counter that all tries from one client are charged to, however many addresses it
        has."""
        return self.key if self.networks is None else self.networks.key_48


class AddressBudget:
    """Charges tries to addresses."""

    def __init__(self, limit: int, installation_key: bytes) -> None:
        """`limit` is the policy's `addressAttempts`."""
        self._budget = Budget(limit, ADDRESS_WINDOW_MS, locks=False)
        self._key = installation_key

    def counters(self, address: str) -> AddressCounters:
        """Return the counters of an address."""
        networks = wider_networks(address)
        return AddressCounters(
            self._counter("address", counted_address(address)),
            None
            if networks is None
            else Networks(*(self._counter("network", network) for network in networks)),
        )

    def charge(self, tx: Tx, charge_id: str, counters: AddressCounters) -> float | None:
        """Charge a try. Returns None when it is admitted, else the seconds to wait."""
        return attempts.charge(tx, charge_id, counters.key, self._budget, counters.networks)

    def wait_of(self, tx: Tx, counters: AddressCounters) -> float | None:
        """Return the seconds that a try would have to wait, or None. Reads only."""
        return attempts.wait_of(tx, counters.key, self._budget, counters.networks)

    def keep(self, tx: Tx, charge_id: str, counters: AddressCounters) -> None:
        """Keep a charge as a failure."""
        attempts.settle_failure(tx, charge_id, counters.key, self._budget)

    def _counter(self, kind: str, name: str) -> bytes:
        return attempts.counter_key(self._key, kind, name)
