"""docs/receiving-webhooks.md: its programs verify what the service signs, and nothing else.

Each runs where its language is installed; Python and the tests' own machine always are.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fw_actors.rules.signing import key_of, mac_of, signed_headers

GUIDE = Path(__file__).parents[2] / "docs" / "receiving-webhooks.md"
NOW = 1_800_000_000
BODY = '{"type":"note.shared","data":{"text":"snowman ☃, ünïcode"}}'.encode()
SECRETS = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_YWI", "a plain secret", "sécret-ключ"]

PYTHON = """
import json, sys
asked = [(a["secret"], a["headers"], base64.b64decode(a["body"]), a["now"])
         for a in json.load(sys.stdin)]
print(json.dumps([is_genuine(*each) for each in asked]))
"""
NODE = """
const asked = JSON.parse(require("node:fs").readFileSync(0));
console.log(JSON.stringify(asked.map(
  (a) => isGenuine(a.secret, a.headers, Buffer.from(a.body, "base64"), a.now))));
"""
GO = """
type asked struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
	Now     float64           `json:"now"`
}

func main() {
	var all []asked
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		panic(err)
	}
	told := []bool{}
	for _, a := range all {
		told = append(told, IsGenuine(a.Secret, a.Headers, a.Body, a.Now))
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		panic(err)
	}
}
"""


def snippet(language: str) -> str:
    """Return the one program of a language in the guide."""
    [found] = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    program: str = found
    return program


def write_program(language: str, folder: Path) -> list[str]:
    """Make the guide's program one that can be asked; return its command."""
    if language == "python":
        file = folder / "receiver.py"
        file.write_text(snippet(language) + PYTHON)
        return [sys.executable, str(file)]
    if language == "javascript":
        file = folder / "receiver.js"
        file.write_text(snippet(language) + NODE)
        return [str(shutil.which("node")), str(file)]
    file = folder / "receiver.go"
    imports = 'package main\n\nimport (\n\t"encoding/json"\n\t"os"\n)\n\n'
    file.write_text(imports + snippet(language) + GO)
    return [str(shutil.which("go")), "run", str(file)]


TOOLS = {"python": "python3", "javascript": "node", "go": "go"}
INSTALLED = [language for language, tool in TOOLS.items() if shutil.which(tool)]


def ask(command: list[str], folder: Path, requests: list[dict[str, Any]]) -> list[bool]:
    done = subprocess.run(
        command, input=json.dumps(requests), capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    report: list[bool] = json.loads(done.stdout)
    return report


def request(secret: str, *, body: bytes = BODY, now: float = NOW, **headers: str) -> dict[str, Any]:
    """A request as the service makes it at `NOW`, as a receiver gets it."""
    made = signed_headers(mac_of(key_of(secret)), "msg_1", NOW * 1000, BODY)
    signed = {name.decode(): value.decode() for name, value in made}
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    text = base64.b64encode(body).decode()
    return {"secret": secret, "headers": signed | changed, "body": text, "now": now}


@pytest.mark.parametrize("language", INSTALLED)
def test_guide_program_accepts_only_genuine_requests(language: str, tmp_path: Path) -> None:
    """A receiver verifies what it gets, with both kinds of secret (B-125)."""
    genuine = [request(secret) for secret in SECRETS]
    several = genuine[0]["headers"]["webhook-signature"]
    genuine.append(request(SECRETS[0], webhook_signature=f"v1,AAAA v1a,x {several}"))
    genuine.append(request(SECRETS[0], now=NOW + 299))
    forged = [
        request(SECRETS[0], body=BODY + b" "),
        request(SECRETS[0], now=NOW + 301),
        request(SECRETS[0], now=NOW - 301),
        request(SECRETS[0], webhook_id="msg_2"),
        request(SECRETS[0], webhook_timestamp=str(NOW + 1)),
        request(SECRETS[0], webhook_signature="v1,"),
        request(SECRETS[0], webhook_signature=several.removeprefix("v1,")),
        {**request(SECRETS[0]), "secret": SECRETS[2]},
    ]
    report = ask(write_program(language, tmp_path), tmp_path, genuine + forged)
    assert report == [True] * len(genuine) + [False] * len(forged)


@pytest.mark.parametrize("language", INSTALLED)
def test_guide_program_refuses_all_requests_without_a_secret(language: str, tmp_path: Path) -> None:
    """The variable with the secret may be unset, and everyone can sign with an empty key."""
    made = signed_headers(mac_of(b""), "msg_1", NOW * 1000, BODY)
    signed = {name.decode(): value.decode() for name, value in made}
    forged = [{**request("x"), "headers": signed, "secret": secret} for secret in ("", "whsec_")]
    assert ask(write_program(language, tmp_path), tmp_path, forged) == [False, False]


@pytest.mark.parametrize("language", INSTALLED)
def test_guide_program_refuses_malformed_headers(language: str, tmp_path: Path) -> None:
    """An exception would be answered 500 instead of 401."""
    whole = request(SECRETS[0])
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    without = [
        {**whole, "headers": {key: value for key, value in whole["headers"].items() if key != name}}
        for name in names
    ]
    texts = ("soon", "", "-1", "9" * 5000)
    malformed = [*without, *(request(SECRETS[0], webhook_timestamp=text) for text in texts)]
    report = ask(write_program(language, tmp_path), tmp_path, malformed)
    assert report == [False] * len(malformed)


def test_guide_has_program_for_each_language() -> None:
    assert all(snippet(language) for language in TOOLS)
