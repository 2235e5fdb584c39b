"""kill -9 at random under load: nothing committed is lost (O-34, O-36, B-212)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.nodes import one_site, several_nodes
from tests.crash.rounds import KillRounds, NodeRounds, ProcessRounds, run
from tests.live_site import LiveReceiver
from tests.postgres_cluster import postgres_cluster


@pytest.mark.timeout(900)
def test_kill_rounds_keep_events_counters_and_tokens(
    tmp_path: Path,
) -> None:
    """Three rounds of server and worker; scripts/crash --rounds 200 for more."""
    with one_site(tmp_path) as site, LiveReceiver() as receiver:
        assert run(KillRounds([site], receiver, seed=1), 3) == []


@pytest.mark.timeout(900)
def test_process_rounds_keep_events_counters_and_tokens(
    tmp_path: Path,
) -> None:
    """One process, all of them, the supervisor alone; scripts/crash --processes 2 for more."""
    with one_site(tmp_path, processes=2) as site, LiveReceiver() as receiver:
        assert run(ProcessRounds([site], receiver, seed=1), 3) == []


@pytest.mark.timeout(900)
def test_node_rounds_keep_invariants_despite_database_restart(
    tmp_path: Path,
) -> None:
    """A node is killed, one is frozen past its leases and thawed, one is restarted, and so is
    PostgreSQL; scripts/crash --store postgresql --rounds 200 for more."""
    with (
        postgres_cluster() as cluster,
        several_nodes(tmp_path, cluster.url(), 3) as nodes,
        LiveReceiver() as receiver,
    ):
        assert run(NodeRounds(nodes, receiver, 1, cluster), 4) == []
