"""Doctor section on the running service and the files of its site."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import msgspec

from fw_actors.config import Config
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from supervisors.service.background import RunState, ServiceStatus, status
from supervisors.service.process import ServingState
from supervisors.service.site_files import (
    RunningWorker,
    SitePaths,
    path_in,
    peer_user,
    running_workers,
)

_PRIVATE: Final = (".env", "secret.key", "secret.key.old", "data/fw.db", "data/serve.log")
"""Files in a site's folder that other users must not be able to read."""

_IGNORED: Final = "fw_forwarded_ignored_total"
_UP: Final = "fw_process_up"
_OPEN_FILES: Final = "process_open_fds"
_MAX_FILES_METRIC: Final = "process_max_fds"
_SCARCE: Final = 0.8  # as the alert FwFilesRunOut
_LONGEST_WRITE: Final = "fw_store_longest_write_seconds"
_LONG_WRITE_SECONDS: Final = 20.0
ASK_SECONDS: Final = 8.0
"""The metrics wait for the store for up to 5 s, and for a process that does not answer for 2 s."""

_MAX_ANSWER_BYTES: Final = 4 << 20
_LARGE_LOG: Final = 100 << 20


class _MetricsAnswer(msgspec.Struct):
    metrics: str = ""


@dataclass(frozen=True)
class WorkerFacts:
    """A running worker. `ready` is None if it does not listen; `changed` as in `ServiceFacts`."""

    pid: int
    version: str
    url: str | None = None
    ready: bool | None = None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServiceFacts:
    """`changed`: files newer than the start. `open_to_all`: private files whose mode lets every
    user read them."""

    status: ServiceStatus
    own_version: str
    changed: tuple[str, ...]
    open_to_all: tuple[str, ...]
    forwarded_ignored: int = 0  # requests with X-Forwarded-* headers from untrusted peers
    log_bytes: int = 0  # of the log that `fw start` appends to
    untrusted_proxy: bool = False  # the site's URL is https, but no proxy is trusted
    silent_processes: int = 0  # in a multi-process service: processes that do not answer the others
    workers: tuple[WorkerFacts, ...] = ()  # on this machine
    unanswered: bool = False  # the running service has not said how it is
    scarce_files: tuple[int, int] | None = None  # a process's open files, and their limit
    longest_write_seconds: float = 0.0  # so far, of the write that has run longest
    trusted: tuple[str, ...] = ()  # the networks of FW_TRUST_PROXY


def service_facts(config: Config, own_version: str) -> ServiceFacts:
    """Read the state of the service and its files. Raises: UnusableDataFolder."""
    paths = SitePaths(config.folder)
    now = status(paths)
    changed: tuple[str, ...] = ()
    if now.state is RunState.RUNNING:
        # A service of an earlier version records no start, and wrote the file only then.
        changed = _changed_since(config, now.began or _changed_at(paths.pid))
    metrics = _metrics(paths, now.url) if now.url else ()
    private = tuple(name for name in _PRIVATE if _is_open(config.folder / name))
    deployment = config.deployment
    is_https = (deployment.public_url or "").startswith("https://")
    return ServiceFacts(
        now,
        own_version,
        changed,
        private,
        int(sum(_values(metrics or (), _IGNORED))),
        _size(paths.log),
        is_https and deployment.trust_proxy.is_off,
        _silent(now, metrics),
        tuple(_worker_facts(config, worker) for worker in running_workers(paths)),
        metrics is None,
        _scarce_files(metrics or ()),
        max(_values(metrics or (), _LONGEST_WRITE), default=0.0),
        tuple(map(str, deployment.trust_proxy.networks)),
    )


def _silent(now: ServiceStatus, metrics: Sequence[str] | None) -> int:
    """Return the number of processes that do not answer, as they tell, or else their supervisor."""
    if metrics is not None:
        return sum(1 for up in _values(metrics, _UP) if not up)
    return sum(each.state == ServingState.SILENT for each in now.serving)


def _scarce_files(metrics: Sequence[str]) -> tuple[int, int] | None:
    """Return open files and their limit of a process that has nearly reached it."""
    processes = zip(
        _values(metrics, _OPEN_FILES), _values(metrics, _MAX_FILES_METRIC), strict=False
    )
    scarce = [(int(used), int(allowed)) for used, allowed in processes if used > _SCARCE * allowed]
    return scarce[0] if scarce else None


def _worker_facts(config: Config, worker: RunningWorker) -> WorkerFacts:
    process = worker.process
    return WorkerFacts(
        process.pid,
        process.version,
        process.url,
        None if process.url is None else bool(http_lines(f"{process.url}/api/ready")),
        _changed_since(config, worker.began),
    )


def _changed_since(config: Config, moment: float) -> tuple[str, ...]:
    """Return the files of the configuration that were changed after `moment` (Unix seconds)."""
    files = (config.file, config.folder / ".env")
    return tuple(file.name for file in files if _changed_at(file) > moment)


def evaluate_service(facts: ServiceFacts) -> Section:
    """Evaluate the facts."""
    shown = {
        "state": facts.status.state.value,
        "version": facts.status.version,
        "workers": len(facts.workers),
    }
    return Section("service", "Service", tuple(_findings(facts)), shown)


def _run_findings(facts: ServiceFacts) -> Iterator[Finding]:
    """Yield the findings about the run of the service and its processes."""
    now = facts.status
    if now.state is RunState.STOPPED:
        yield ok("the service is stopped")
    else:
        where = f" at {now.url}" if now.url else ""
        count = f", in {now.processes} processes" if now.processes > 1 else ""
        text = f"the service is {now.state.value}{where}{count}"
        if facts.silent_processes and facts.silent_processes >= now.processes:
            yield problem(
                f"{text}; no process responds",
                "Check its log. If the database answers, end each hanging process (fw status, "
                "kill -9): the service replaces it. If that does not help, run fw restart.",
            )
            return
        yield ok(text)
    if facts.unanswered:
        yield warning(
            f"the service responds neither on the console socket nor at {now.url}/metrics, so "
            "doctor cannot check forwarded headers or hanging processes",
            "Run fw doctor as the service's user on its machine. If this persists, check the log: "
            "the service may hang.",
        )
    if facts.silent_processes:
        yield warning(
            f"{facts.silent_processes} of {now.processes} processes of the service do not answer",
            "fw status shows which. Under systemd the service replaces a process that hangs; "
            "elsewhere end the process (kill -9), and the service replaces it.",
        )
    if facts.longest_write_seconds > _LONG_WRITE_SECONDS:
        yield warning(
            f"a write of the service has run for {facts.longest_write_seconds:.0f} s; on SQLite "
            "all other writes wait for it",
            "The log names the hook, function or job of an app that runs (a transaction has taken "
            "…). If it does not end, run fw restart and correct the app.",
        )
    if facts.scarce_files is not None:
        used, allowed = facts.scarce_files
        yield warning(
            f"a process of the service has {used} files and connections open; "
            f"the limit is {allowed}",
            "Raise LimitNOFILE= in the unit (ulimit -n) and restart: without a free file "
            "descriptor, clients wait.",
        )


def _findings(facts: ServiceFacts) -> Iterator[Finding]:
    now = facts.status
    yield from _run_findings(facts)
    if now.version is not None and now.version != facts.own_version:
        yield warning(
            f"the running service is version {now.version}, and this is {facts.own_version}",
            "Run fw restart.",
        )
    if facts.changed:
        yield warning(
            f"changed since the service was started: {', '.join(facts.changed)}",
            "Run fw restart to apply the new configuration.",
        )
    for worker in facts.workers:
        yield from _worker_findings(worker, facts.own_version)
    if facts.forwarded_ignored and facts.trusted:
        yield warning(
            f"requests with X-Forwarded-* headers so far from peers that FW_TRUST_PROXY does not "
            f"trust: {facts.forwarded_ignored}; the clients of such a proxy count as one address",
            f"FW_TRUST_PROXY is {', '.join(facts.trusted)}: if the proxy connects from another "
            "address (address of web.request in the log), name it. Otherwise clients bypass the "
            "proxy: let only the proxy reach the service.",
        )
    elif facts.forwarded_ignored:
        yield warning(
            f"requests with X-Forwarded-* headers so far: {facts.forwarded_ignored}, and "
            "FW_TRUST_PROXY is off: a proxy's clients count as one address",
            "Set FW_TRUST_PROXY to the proxy's network, or remove the headers in the proxy.",
        )
    elif facts.untrusted_proxy:
        yield warning(
            "FW_PUBLIC_URL is https, so a proxy terminates TLS, but FW_TRUST_PROXY is off: its "
            "clients count as one address, and a proxy on this machine that sets no forwarded "
            "headers opens /metrics to them",
            "Set FW_TRUST_PROXY to the proxy's network, and X-Forwarded-For in the proxy.",
        )
    if facts.log_bytes > _LARGE_LOG:
        yield warning(
            f"data/serve.log has grown to {facts.log_bytes >> 20} MiB",
            "Rotate it with logrotate (copytruncate), or serve under systemd.",
        )
    for name in facts.open_to_all:
        yield warning(
            f"every user of this machine with access to the site's folder can read {name}",
            f"chmod o= {name}",
        )


def _worker_findings(worker: WorkerFacts, own_version: str) -> Iterator[Finding]:
    """Yield the findings about one worker."""
    name = f"the worker of process {worker.pid}"
    where = " without --metrics" if worker.url is None else f" at {worker.url}"
    if worker.ready is False:
        yield warning(
            f"{name}{where} is not ready",
            "It is starting or stopping, or its store does not respond. Check its log.",
        )
    else:
        yield ok(f"{name} runs{where}")
    if worker.version != own_version:
        yield warning(
            f"{name} is version {worker.version}, and this is {own_version}", "Restart the worker."
        )
    if worker.changed:
        yield warning(
            f"changed since {name} was started: {', '.join(worker.changed)}",
            "Restart the worker to apply the new configuration.",
        )


def _metrics(paths: SitePaths, url: str) -> Sequence[str] | None:
    """Return the lines of the metrics; None if the service does not answer.

    The console's socket is open to the service's own user, whatever its address. It belongs to the
    first process, so another one is asked over HTTP if the first one hangs.
    """
    return _lines_of_socket(paths.console) or http_lines(f"{url}/metrics") or None


def _lines_of_socket(address_file: Path) -> Sequence[str]:
    """Return the lines of the metrics from the console's socket; none if it is unavailable."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ASK_SECONDS)
            client.connect(os.fspath(path_in(address_file)))
            # Another user may have recreated the folder of a killed service.
            if peer_user(client) != address_file.stat().st_uid:
                return ()
            client.sendall(b'{"do": "metrics"}\n')
            with client.makefile("rb") as answers:
                found = msgspec.json.decode(
                    answers.readline(_MAX_ANSWER_BYTES), type=_MetricsAnswer
                )
            return found.metrics.splitlines()
    except (OSError, ValueError):  # also a service of a version without this question
        return ()


def http_lines(url: str) -> Sequence[str]:
    """Return the lines at `url` of the service; none if it is unavailable."""
    try:
        # The running service, or worker, has written this URL into its own folder.
        with urlopen(url, timeout=ASK_SECONDS) as answer:  # nosec B310
            lines: list[str] = answer.read(_MAX_ANSWER_BYTES).decode().splitlines()
            return lines
    except (OSError, ValueError, HTTPException):
        return ()


def _values(lines: Sequence[str], name: str) -> Iterator[float]:
    """Yield the samples of a metric: one, or one for each process."""
    for line in lines:
        if line.startswith((f"{name} ", f"{name}{{")):
            yield float(line.split()[-1])


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
