"""`webhooks verify` and `webhooks listen` (C-155, C-156)."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fw_cli.receiving import MAX_BODY_BYTES
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
    assert 0 <= first["ageSeconds"] < 60
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


def test_webhooks_listen_answers_with_status_and_shortens_long_body(fw: CommandLine) -> None:
    with listening(fw, "--status", "503", "--count", "1") as (port, process):
        assert post(port, "2001", b"x" * 2001) == b"503"
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == f"- - /: not verified: no secret was given\n  {'x' * 2000} …\n"


def test_webhooks_listen_ends_if_nobody_reads_its_output(fw: CommandLine) -> None:
    """As with `| head`; it continued, and printed a traceback for each request."""
    with listening(fw) as (port, process):
        assert process.stdout is not None
        process.stdout.close()
        assert post(port, "0") == b"204"
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_webhooks_listen_names_error_of_saving(fw: CommandLine) -> None:
    with listening(fw, "--save", "got") as (port, process):
        (fw.folder / "got").rmdir()
        assert post(port, "0") == b""
        process.terminate()
        assert process.communicate(timeout=60)[1] == (
            "a request failed: No such file or directory\n"
        )


def test_webhooks_listen_saves_files_for_their_owner_alone(fw: CommandLine) -> None:
    """C-155."""
    with listening(fw, "--save", "got") as (port, _):
        assert post(port, "0") == b"204"
        folder = fw.folder / "got"
        (file,) = folder.iterdir()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, file)] == [0o700, 0o600]


def test_webhooks_listen_does_not_write_through_a_link(fw: CommandLine) -> None:
    """C-155."""
    folder, other = fw.folder / "got", fw.folder / "other"
    folder.mkdir()
    other.write_text("untouched")
    (folder / "0001-request.txt").symlink_to(other)
    with listening(fw, "--save", "got") as (port, _):
        assert post(port, "0") == b"204"
    assert other.read_text() == "untouched"
    assert not (folder / "0001-request.txt").is_symlink()


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
    for option in (("--secret-stdin",), ("--secret-env", "A")):
        both = fw.run("webhooks", "listen", "--webhook", "x", *option)
        assert "--webhook excludes --secret-stdin and --secret-env." in both.stderr
    far = fw.run("webhooks", "verify", "-", "--webhook", "x", "--tolerance", "nan", stdin=saved)
    assert (far.exit_code, "number of seconds" in far.stderr) == (2, True)
    assert "cannot be read" in fw.refused("webhooks", "verify", "none", "--webhook", "x")
    assert "empty line" in fw.refused(
        "webhooks", "verify", "-", "--secret-env", "A", stdin="no request", FW_SECRET_A="s"
    )


def test_webhooks_verify_refuses_request_beyond_the_tolerance(fw: CommandLine) -> None:
    saved = "webhook-id: m\nwebhook-timestamp: 1\nwebhook-signature: v1,x\n\n{}"
    verify = ("webhooks", "verify", "-", "--secret-env", "A")
    late = fw.refused(*verify, "--tolerance", "300", stdin=saved, FW_SECRET_A="s")
    assert "s ago, but the limit is 300 s." in late
    assert "the limit" not in fw.refused(*verify, stdin=saved, FW_SECRET_A="s")


def test_webhooks_verify_shows_no_age_without_timestamp(fw: CommandLine) -> None:
    verify = ("webhooks", "verify", "-", "--secret-env", "A", "--json")
    result = fw.run(*verify, stdin="webhook-id: m\n\n{}", FW_SECRET_A="s")
    assert json.loads(result.stdout)["ageSeconds"] is None


def test_webhooks_verify_refuses_file_of_more_than_16_mib(fw: CommandLine) -> None:
    verify = ("webhooks", "verify", "saved", "--secret-env", "A")
    for size, said in (
        (MAX_BODY_BYTES, "There must be header lines"),
        (MAX_BODY_BYTES + 1, "16 MiB"),
    ):
        with (fw.folder / "saved").open("wb") as file:
            file.truncate(size)
        assert said in fw.refused(*verify, FW_SECRET_A="s")


def test_webhooks_verify_refuses_unusable_secret(fw: CommandLine) -> None:
    said = fw.refused(
        "webhooks", "verify", "-", "--secret-env", "A", stdin="a: b\n\n", FW_SECRET_A="whsec_!"
    )
    assert said == "fw: whsec_ must be followed by standard base64 of at least one byte.\n"


def test_webhooks_verify_works_without_site(fw: CommandLine) -> None:
    """A receiver's developer has a secret and a request, and no fw.json."""
    (fw.folder / "fw.json").unlink()
    (fw.folder / "saved").write_text(
        "webhook-id: m\nwebhook-timestamp: 1\nwebhook-signature: v1,x\n\n{}"
    )
    verify = ("webhooks", "verify", "saved", "--secret-stdin")
    assert "No signature matches" in fw.refused(*verify, stdin="s\n")


def test_webhooks_verify_names_remedy_for_webhook_without_secret(fw: CommandLine) -> None:
    fw.done("webhooks", "add", "https://x.example/", "--name", "erp", "--event", "a.b")
    fw.done("eval", "fw.db.sql('UPDATE doc_webhook SET secret = NULL')", "--commit")
    said = "fw: erp has no signing secret; fw webhooks rotate-secret erp creates one\n"
    assert fw.refused("webhooks", "verify", "-", "--webhook", "erp", stdin="a: b\n\n") == said


def test_webhooks_listen_names_unusable_folder(fw: CommandLine) -> None:
    (fw.folder / "file").touch()
    output = fw.refused("webhooks", "listen", "--port", "0", "--save", "file/requests")
    assert output == "fw: file/requests cannot be created: Not a directory.\n"
