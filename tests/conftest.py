"""The fixtures of tests in several folders: the two stores, and a PostgreSQL server."""

from __future__ import annotations

import gc
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from fw_actors.store.statement import POSTGRESQL, SQLITE
from tests.installed_wheel import InstalledWheel, installed_wheel
from tests.kept_schemas import KeptSchemas
from tests.postgres_cluster import PostgresCluster, postgres_cluster
from tests.process_log import logging_as_it_was
from tests.site_kit import keep_database_at

_HERE: Final = Path(__file__).parent
_YOUNG_OBJECTS: Final = 20_000  # as in a process that serves

# Folders and files that take longest come first, so that no core waits for one alone at the end.
# Those that mostly wait, for a timer or for other processes, stand between those that compute.
_LONGEST: Final = (
    "browser",  # waits
    "simulation",
    "supervisors/service/test_several_processes.py",  # waits
    "docs/test_snippets.py",
    "fuzz/test_openapi.py",
    "crash/test_rounds.py",  # waits
    "releases",
    "fw_actors/documents/test_stores_alike.py",
    "fw_cli/test_demo.py",  # waits
    "access/test_rights_audit.py",
    "supervisors/test_storm.py",
    "supervisors/service/test_slow_receivers.py",  # waits
    "fw_cli/test_service.py",
    "access/test_api_keys.py",
    "fw_actors/actors/test_answer_heads.py",  # waits
    "access",
    "crash",  # waits
    "security",
    "fw_actors/actors",
    "web/test_flood.py",
    "supervisors/service",
    "fw_cli",
    "benchmarks",
    "interop",
    "fuzz",
    "fw_actors/runtime/test_typing.py",
    "scripts",
    "mutants",
    "examples",
    "fw_actors/documents",
    "fw_actors/webhooks",
    "fw_actors/store",
    "fw_actors/access",
    "deploy",
    "test_names.py",
    "docs",
    "web",
)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control ignores it in commands in the background, and programs that tests
    # start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files; the tests of each stay as they are."""
    order = {file: _place(file) for file in {item.path for item in items}}
    items.sort(key=lambda item: order[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the files of the browser in one process, which waits most of the time: each further
    process would have a browser and a site of its own, and the cores have others to run."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    browser = f"{(_HERE / 'browser').relative_to(config.rootpath).as_posix()}/"

    class OneBrowserScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return browser if nodeid.startswith(browser) else str(super()._split_scope(nodeid))

    return OneBrowserScheduling(config, log)


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder whose path leaves room for a socket's, which has at most 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="", dir=tmp_path_factory.getbasetemp()))


def _place(file: Path) -> int:
    own = file.relative_to(_HERE)
    named = (at for at, name in enumerate(_LONGEST) if own.is_relative_to(name))
    return next(named, len(_LONGEST))


def pytest_collection() -> None:
    """Import the modules without collections, which find little: where no module has been compiled
    yet, they take a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was imported out of every collection: collecting after a module is cheap then.

    Young objects are collected as seldom as in a process that serves.
    """
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def garbage_is_found_where_it_was_left() -> Iterator[None]:
    """Collect after each module, so that what a test left open fails there, and at each run.

    An open socket is an error of the test during which it is collected: without
    this a random one, of another module. What is still in use is left out of later collections:
    among what all modules before have kept, each would take a tenth of a second.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def log_is_as_it_was() -> Iterator[None]:
    """A command or service of a test sets up the log of its process, which runs further tests."""
    with logging_as_it_was():
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgresCluster]:
    """A server for the whole run; tests fail, with what to install, where there is none."""
    with postgres_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(cluster: PostgresCluster) -> Iterator[str]:
    """The URL of an empty schema."""
    with cluster.schema() as url:
        yield url


@pytest.fixture(scope="session", name="installed_wheel")
def wheel_of_the_run(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> InstalledWheel:
    """The wheel, installed: one for all processes of a run."""
    base = tmp_path_factory.getbasetemp()
    of_many = hasattr(request.config, "workerinput")  # pytest-xdist's processes share its parent
    return installed_wheel((base.parent if of_many else base) / "installed-wheel")


@pytest.fixture(scope="session")
def kept_schemas(cluster: PostgresCluster) -> Iterator[KeptSchemas]:
    """Schemas that have their tables from a test before."""
    with closing(KeptSchemas(cluster)) as schemas:
        yield schemas


@pytest.fixture
def kept_schema(kept_schemas: KeptSchemas, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a schema whose tables are empty, or are not there yet."""
    with kept_schemas.lend(request.path.parent) as url:
        yield url


@pytest.fixture(params=[SQLITE, POSTGRESQL])
def on_both_stores(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Run a test on SQLite and on PostgreSQL: its sites in `tmp_path` are kept there.

    For a module: `pytestmark = pytest.mark.usefixtures("on_both_stores")`.
    """
    if request.param == POSTGRESQL:
        keep_database_at(tmp_path, request.getfixturevalue("kept_schema"))
