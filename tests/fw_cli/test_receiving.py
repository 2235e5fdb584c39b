"""`webhooks verify` and `webhooks listen` (C-155, C-156)."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fw_cli.conftest import CommandLine
from tests.fw_cli.webhook_kit import make_hook
from tests.live_site import SECRET


def test_webhooks_listen_saves_requests_for_webhooks_verify(fw: CommandLine) -> None:
    fw.environ["FW_SECRET_HOOK"] = SECRET
    listen = ("webhooks", "listen", "--port", "0", "--count", "2", "--save", "got", "--json")
    with fw.process(*listen, "--secret-env", "HOOK") as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        hook, other = make_hook(fw, found[0] + "hook"), make_hook(fw, found[0])
        fw.done("webhooks", "rotate-secret", other, "--yes")
        fw.done("webhooks", "test", hook)
        fw.done("webhooks", "test", other)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "1 of 2 requests could not be verified" in err
    first, second = map(json.loads, out.splitlines())
    assert (first["verified"], first["event"], first["path"]) == (True, "fw.test", "/hook")
    assert (second["verified"], len(second["faults"])) == (False, 1)
    assert SECRET not in out + err
    output = fw.done("webhooks", "verify", first["file"], "--webhook", hook)
    assert "the signature is valid" in output
    refused = fw.run("webhooks", "verify", second["file"], "--secret-env", "HOOK", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["verified"]) == (1, False)


@contextmanager
def listening(fw: CommandLine, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run fw webhooks listen; its port and its process."""
    with fw.process("webhooks", "listen", "--port", "0", *options) as process:
        assert process.stderr is not None
        found = re.search(r":(\d+)/", process.stderr.readline())
        assert found is not None
        try:
            yield int(found[1]), process
        finally:
            process.terminate()


def post(port: int, length: str, body: bytes = b"") -> bytes:
    """Return the status of the response; no bytes if the connection ends without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode() + body)
        return client.recv(100)[9:12]


def test_webhooks_listen_refuses_unusable_content_length(fw: CommandLine) -> None:
    with listening(fw) as (port, process):
        statuses = [post(port, length) for length in ("9" * 5000, str(2**24 + 1), "x", "-1", "")]
        process.terminate()
        assert process.communicate(timeout=60) == ("", "")
    assert statuses == [b"413", b"413", b"400", b"400", b"411"]


@pytest.mark.parametrize("reset", [True, False])
def test_webhooks_listen_ignores_request_that_ends_early(fw: CommandLine, reset: bool) -> None:
    """It counts as none, and prints nothing."""
    with listening(fw, "--count", "1") as (port, process):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\npart")
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                client.shutdown(socket.SHUT_WR)
                assert client.recv(100) == b""
        assert post(port, "5", b"whole") == b"204"
        out, err = process.communicate(timeout=60)
    assert (out.splitlines()[1:], err) == (["  whole"], "")


def test_webhooks_listen_names_error_of_saving(fw: CommandLine) -> None:
    with listening(fw, "--save", "got") as (port, process):
        (fw.folder / "got").rmdir()
        assert post(port, "0") == b""
        process.terminate()
        assert process.communicate(timeout=60)[1] == (
            "a request failed: No such file or directory\n"
        )


def test_webhooks_listen_exits_0_at_sigterm(fw: CommandLine) -> None:
    with fw.process("webhooks", "listen", "--port", "0") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("listening at")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_webhooks_verify_reads_request_from_stdin(fw: CommandLine) -> None:
    saved = "webhook-id: m\nwebhook-timestamp: 1\nwebhook-signature: v1,x\n\n{}"
    output = fw.refused(
        "webhooks", "verify", "-", "--secret-env", "A", stdin=saved, FW_SECRET_A="s"
    )
    assert "No signature matches" in output
    assert fw.run("webhooks", "verify", "-", "--secret-stdin", stdin=saved).exit_code == 2
    assert fw.run("webhooks", "verify", "-", stdin=saved).exit_code == 2
    far = fw.run("webhooks", "verify", "-", "--webhook", "x", "--tolerance", "nan", stdin=saved)
    assert (far.exit_code, "number of seconds" in far.stderr) == (2, True)
    assert "cannot be read" in fw.refused("webhooks", "verify", "none", "--webhook", "x")
    assert "empty line" in fw.refused(
        "webhooks", "verify", "-", "--secret-env", "A", stdin="no request", FW_SECRET_A="s"
    )


def test_webhooks_verify_works_without_site(fw: CommandLine) -> None:
    """A receiver's developer has a secret and a request, and no fw.json."""
    (fw.folder / "fw.json").unlink()
    (fw.folder / "saved").write_text(
        "webhook-id: m\nwebhook-timestamp: 1\nwebhook-signature: v1,x\n\n{}"
    )
    verify = ("webhooks", "verify", "saved", "--secret-stdin")
    assert "No signature matches" in fw.refused(*verify, stdin="s\n")


def test_webhooks_listen_names_unusable_folder(fw: CommandLine) -> None:
    (fw.folder / "file").touch()
    output = fw.refused("webhooks", "listen", "--port", "0", "--save", "file/requests")
    assert output == "fw: file/requests cannot be created: Not a directory.\n"
