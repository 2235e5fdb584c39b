"""The one gate to argon2."""

from fw_actors.hashing.costs import StoredCosts, cost_of
from fw_actors.hashing.hasher import Hasher, HasherStatistics, Lane, PreparedPassword, Verified

__all__ = [
    "Hasher",
    "HasherStatistics",
    "Lane",
    "PreparedPassword",
    "StoredCosts",
    "Verified",
    "cost_of",
]
