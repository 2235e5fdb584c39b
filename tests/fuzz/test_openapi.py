"""A live service against its own OpenAPI document (H-106).

Schemathesis makes requests of the document, fitting ones and others, keeps what answers tell for
later requests, and holds each answer against the document. A 5xx is a defect; so is a refusal
outside of the envelope, a body that the document forbids and the service takes, or an operation
that asks for a session and serves without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.live_site import ROOT, LiveSite

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "response_headers_conformance", "negative_data_rejection",
    "unsupported_method", "allow_header_conformance", "ignored_auth",
)  # fmt: skip
ENDS_SESSIONS = r"logout|login|revokeMySession"
# Each is asked by the paths that name no DocType: 50 wrong keys, one an operation, are the most.
BUILT_IN = r"/resource/(API|Audit|Email|Error|Role|User|Version|Webhook)"
# The credentials are given below; the throttles are wide, or they would answer most requests.
SETTINGS = "[generation]\nwith-security-parameters = false\n"
# Operations without a session: sign-in, links, health, and public operations of apps.
PUBLIC = r"/api/(login|logout|boot|auth/|health|ready|method/(?!core\.))|/metrics"
BATCH = r"webhooks\.emitMany"
# Operations that restart actors, for which others answer 503 meanwhile.
CONSOLE = r"services\.console\."
POLICY = (
    '{"site": {"name": "fuzz"}, "apps": ["examples.notes"], "auth": {"addressAttempts": 1000000,'
    ' "recoveryAttempts": 1000000, "maxLoginAttempts": 1000}}'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    folder = tmp_path_factory.mktemp("fuzzed")
    with LiveSite(folder) as site:
        (folder / "fw.json").write_text(POLICY)
        (folder / "schemathesis.toml").write_text(SETTINGS)
        site.add_manager()
        site.start()
        yield site


def fuzz(site: LiveSite, *arguments: str, sid: str | None = None) -> None:
    """Run the fuzzer to its end; fail with what it has found."""
    command = [
        sys.executable, "-P", "-m", "schemathesis.cli", "run", f"{site.url}/api/openapi.json",
        "--checks", ",".join(CHECKS), "--seed", "1", "--no-color", "--no-shrink",
        "--output-truncate", "false", "--suppress-health-check", "all",
        "--request-timeout", "60", "-H", "X-FW-CSRF: 1", *arguments,
    ]  # fmt: skip
    if sid is not None:
        command += ["-H", f"Cookie: sid={sid}"]
    environ = os.environ | {
        "SCHEMATHESIS_HOOKS": "tests.fuzz.openapi_hooks",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, cwd=site.folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed\n" in done.stdout, done.stdout


def signed_in(site: LiveSite) -> str:
    with site.client() as client:
        return client.cookies["sid"]


@pytest.mark.timeout(300)
def test_manager_operations_respond_as_described(site: LiveSite) -> None:
    """Operations that end sessions are left out; they would end this one."""
    sid = signed_in(site)
    left_out = f"{ENDS_SESSIONS}|/auth/|{BUILT_IN}|{BATCH}|{CONSOLE}"
    phases = ("--phases", "coverage,fuzzing", "--max-examples", "3")
    fuzz(site, *phases, "--exclude-path-regex", left_out, sid=sid)
    with site.client() as client:
        client.cookies.clear()
        client.cookies["sid"] = sid
        assert client.get("/api/boot").json()["user"]["name"] == "admin", "it was signed in"


@pytest.mark.timeout(300)
def test_event_batches_respond_as_described(site: LiveSite) -> None:
    """An event of a wrong shape is refused for itself, in an answer of 200 (B-87)."""
    phases = ("--phases", "coverage,fuzzing", "--max-examples", "3")
    refused = ("--exclude-checks", "negative_data_rejection")
    fuzz(site, *phases, *refused, "--include-path-regex", BATCH, sid=signed_in(site))


@pytest.mark.timeout(300)
def test_console_operations_respond_as_described(site: LiveSite) -> None:
    phases = ("--phases", "coverage,fuzzing", "--max-examples", "3")
    restarting = ("--exclude-checks", "not_a_server_error,ignored_auth")  # 50 wrong keys at most
    fuzz(site, *phases, *restarting, "--include-path-regex", CONSOLE, sid=signed_in(site))


@pytest.mark.timeout(300)
def test_session_ending_operations_respond_as_described(site: LiveSite) -> None:
    phases = ("--phases", "coverage", "--max-examples", "3")
    fuzz(site, *phases, "--include-path-regex", ENDS_SESSIONS, sid=signed_in(site))


@pytest.mark.timeout(300)
def test_unauthenticated_operations_respond_as_described(site: LiveSite) -> None:
    """Everything but the public operations is refused, as described as well.

    Operations refused before their body is read need fewer requests.
    """
    refused = ("--exclude-path-regex", PUBLIC)
    fuzz(site, "--phases", "fuzzing", "--max-examples", "2", *refused)
    public = ("--include-path-regex", PUBLIC)
    fuzz(site, "--phases", "coverage,fuzzing", "--max-examples", "2", *public)
