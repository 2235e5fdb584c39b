"""Detection of the main process of a unit of systemd (C-133)."""

from __future__ import annotations

import pytest

from supervisors.service import background
from supervisors.service.site_files import RunBySystemd, SitePaths
from supervisors.service.systemd import Unit, unit_from_facts, without_unit
from tests.supervisors.service.conftest import FakeServices

SYSTEM = "0::/system.slice/fw.service\n"
OF_A_USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/fw.service\n"
TERMINAL = "0::/user.slice/user-1000.slice/session-2.scope\n"
VERSION_1 = "12:pids:/system.slice/fw.service\n1:name=systemd:/system.slice/fw.service\n"


@pytest.mark.parametrize(
    ("environ", "parent", "cgroup", "unit"),
    [
        ({"NOTIFY_SOCKET": "/run/systemd/notify"}, 1, SYSTEM, Unit("fw.service")),
        ({"SYSTEMD_EXEC_PID": "7"}, 1, VERSION_1, Unit("fw.service")),
        ({"SYSTEMD_EXEC_PID": "7"}, 900, OF_A_USER, Unit("fw.service", of_user=True)),
        ({"INVOCATION_ID": "c0ffee"}, 1, SYSTEM, Unit("fw.service")),
        ({"NOTIFY_SOCKET": "@notify"}, 1, "", Unit("")),
        # The variables that a terminal, a test runner, or a shell of another unit passes on.
        ({"INVOCATION_ID": "c0ffee", "SYSTEMD_EXEC_PID": "6"}, 6, SYSTEM, None),
        ({"INVOCATION_ID": "c0ffee"}, 1, TERMINAL, None),
        ({}, 1, SYSTEM, None),
    ],
)
def test_unit_is_recognised_for_its_main_process_only(
    environ: dict[str, str], parent: int, cgroup: str, unit: Unit | None
) -> None:
    assert unit_from_facts(7, parent, environ, cgroup) == unit


def test_unit_command_names_the_manager_and_the_unit() -> None:
    assert Unit("fw.service").command("stop") == "systemctl stop fw.service"
    assert Unit("fw.service", of_user=True).command("restart") == (
        "systemctl --user restart fw.service"
    )
    assert Unit("").command("stop") == "systemctl stop UNIT"


def test_stop_of_a_systemd_service_is_refused(fakes: FakeServices, paths: SitePaths) -> None:
    process = fakes.ready(NOTIFY_SOCKET="/nowhere/notify")
    with pytest.raises(RunBySystemd, match=f"process {process.pid}.*use: systemctl .*restart "):
        background.stop(paths, "restart")
    assert process.poll() is None


def test_background_environment_omits_variables_of_the_unit() -> None:
    of_a_unit = {
        "NOTIFY_SOCKET": "x",
        "INVOCATION_ID": "x",
        "WATCHDOG_USEC": "1",
        "LISTEN_FDS": "1",
    }
    kept = {"PATH": "/bin", "CREDENTIALS_DIRECTORY": "/run/credentials/x"}
    assert without_unit({**of_a_unit, **kept}) == kept
