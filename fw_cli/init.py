"""`fw init`: creates a new site in a folder, with its policy, its environment file and its key."""

from __future__ import annotations

import importlib.util
import keyword
import os
import shlex
from pathlib import Path
from typing import Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed

KEY_BYTES: Final = 32

_POLICY: Final = """\
{
  "site": {"name": "%s"},
  "auth": {"refuseCommonPasswords": true},
  "ops": {"outgoing": {"private": "deny", "allow": ["127.0.0.0/8", "::1/128"]}},
  "apps": [%s]
}
"""
_FACTS: Final = """\
# Settings of this deployment; the process's environment takes precedence. fw doctor checks them.
# Secrets (FW_SECRET_<NAME>) are read from the process's environment only; FW_SECRET_KEY is read
# from secret.key unless the environment sets it.

# The address that users enter; links in mails begin with it.
#FW_PUBLIC_URL=https://fw.example.org
#FW_BIND=127.0.0.1:8000
# The proxy in front of the service, if any: off, on, or its network.
#FW_TRUST_PROXY=off
#FW_MAIL_TRANSPORT=smtp
#FW_MAIL_FROM=Desk <desk@example.org>
#FW_SMTP_HOST=mail.example.org
"""
_EXAMPLE: Final = '''\
"""A first app: notes in notebooks, and minutes of meetings that are approved.

The page "Writing an app" of the documentation walks through it. Change it into yours.
"""

'''
_IGNORED: Final = ".env\nsecret.key*\ndata/\n"


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option(
    "--app", metavar="NAME", help="Also create a first app: the manual's example, as NAME.py."
)
@click.pass_obj
def init(context: CommandContext, folder: Path, app: str | None) -> None:
    """Create a site in FOLDER (default: here): fw.json, .env, secret.key, .gitignore.

    Existing files are not changed; a folder that contains a fw.json is rejected.
    """
    site = (context.cwd / folder).absolute()
    if app is not None:
        _check_module_name(app)
    policy = site / "fw.json"
    if policy.exists():
        raise CommandFailed(f"{policy} already exists; this folder is a site")
    try:
        site.mkdir(parents=True, exist_ok=True)
        made = [
            _make(site / "secret.key", new_key(), 0o600),
            _make(site / ".env", _FACTS, 0o640),
            _make(site / ".gitignore", _IGNORED, 0o644),
            "" if app is None else _make(site / f"{app}.py", _example(), 0o644),
            # last: now it is a site
            _make(policy, _POLICY % (_name(site), "" if app is None else f'"{app}"'), 0o644),
        ]
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be written: {error.strerror}") from error
    click.echo(f"created {', '.join(name for name in made if name)} in {site}")
    click.echo(
        f"""
Next:
  cd {shlex.quote(str(site))}
  fw start
  fw user add admin --email you@example.org --role "System Manager"
  fw doctor

Keep a copy of secret.key in a safe place: without it stored secrets cannot be decrypted."""
    )


def _check_module_name(name: str) -> None:
    """Refuse a name that a site's folder, which is last on the import path, could not provide."""
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise click.UsageError(f"--app {name} is not the name of a Python module.")
    from fw_actors.config.policy import is_reserved

    if is_reserved(name):
        raise CommandFailed(f"{name} is reserved for the framework; give the app another name")
    if importlib.util.find_spec(name) is not None:
        raise CommandFailed(f"a module {name} already exists: give the app another name")


def _example() -> str:
    """Return the example app: from the wheel, or from the clone that this program runs from."""
    packed = Path(__file__).with_name("example_app.txt")
    file = packed if packed.exists() else Path(__file__).parents[1] / "examples/notes/__init__.py"
    text = file.read_text(encoding="utf-8")
    return _EXAMPLE + text[text.index("from __future__") :]


def _make(path: Path, text: str, mode: int) -> str:
    """Write a file unless it exists; return its name if it was written, else an empty text."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return ""
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path.name


def new_key() -> str:
    """Return a random key as the text of its file."""
    import base64

    from fw_actors.runtime.clock import SystemEntropy

    return base64.b64encode(SystemEntropy().bytes(KEY_BYTES)).decode() + "\n"


def _name(site: Path) -> str:
    """Return the folder's name as the site's name, reduced to plain characters."""
    plain = "".join(c for c in site.name if c.isascii() and (c.isalnum() or c in " ._-")).strip()
    return plain[:100] or "fw"
