"""Arguments and signals that scripts/fw and scripts/start pass on (C-140, C-142).

They run in a copy of the project whose Python only prints how it was called; its recipe says that
it is current, so that nothing is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
TELLS = """#!/bin/sh
echo "key=$FW_SECRET_KEY"
echo "pid=$$"
echo "tunables=${GLIBC_TUNABLES-}"
for argument in "$@"; do echo "argument=$argument"; done
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with a Python that prints its arguments and environment."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in (
        "pyproject.toml",
        "constraints.txt",
        "constraints-build.txt",
        "constraints-dev.txt",
    ):
        shutil.copy(ROOT / name, folder)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(TELLS)
    python.chmod(0o755)
    recipe = [
        f"{folder}\n",
        *((folder / n).read_text() for n in ("pyproject.toml", "constraints-dev.txt")),
    ]
    (folder / ".venv" / "made-from").write_text("".join(recipe))
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "a site"
    folder.mkdir()
    (folder / "fw.json").write_text("{}")
    return folder


def begin(
    command: Path, *arguments: str, cwd: Path, environ: dict[str, str]
) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FW_")}
    return subprocess.Popen(
        [command, *arguments], cwd=cwd, env=kept | environ, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output_of(process: subprocess.Popen[str]) -> list[str]:
    out, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    return out.splitlines()


def run(command: Path, *arguments: str, cwd: Path, **environ: str) -> list[str]:
    return output_of(begin(command, *arguments, cwd=cwd, environ=environ))


def test_fw_script_passes_arguments_from_any_folder(project: Path, site: Path) -> None:
    lines = run(project / "scripts" / "fw", "eval", "a b", "", cwd=site)
    assert [line.removeprefix("argument=") for line in lines[3:]] == [
        "-P", "-m", "fw_cli", "eval", "a b", "",
    ]  # fmt: skip


def test_fw_script_works_through_symlink(project: Path, site: Path) -> None:
    (site / "fw").symlink_to(project / "scripts" / "fw")
    assert "argument=version" in run(site / "fw", "version", cwd=site)


def test_fw_script_is_replaced_by_its_process(project: Path, site: Path) -> None:
    """A signal to it then reaches the service."""
    process = begin(project / "scripts" / "fw", "serve", cwd=site, environ={})
    assert f"pid={process.pid}" in output_of(process)


def test_fw_in_unwritable_clone_names_owner_command(project: Path, site: Path) -> None:
    (project / ".venv" / "made-from").unlink()
    (project / ".venv.lock").mkdir()  # what root cannot write either
    process = begin(project / "scripts" / "fw", "version", cwd=site, environ={})
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    told_of, _, command = error.partition("; its owner runs ")
    assert told_of == f"fw: {project}/.venv is not ready and cannot be written"
    assert shlex.split(command) == [str(project / "scripts" / "fw"), "version"]


def test_fw_script_requests_huge_pages_by_default(project: Path, site: Path) -> None:
    fw = project / "scripts" / "fw"
    setting = "tunables=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
    assert setting in run(fw, cwd=site, GLIBC_TUNABLES="")
    assert "tunables=glibc.malloc.tcache_count=2" in run(
        fw, cwd=site, GLIBC_TUNABLES="glibc.malloc.tcache_count=2"
    )


def test_fw_puts_site_key_into_no_environment(project: Path, site: Path) -> None:
    """The program reads secret.key by itself; a key of the caller's environment is handed on."""
    fw = project / "scripts" / "fw"
    (site / "secret.key").write_text("of the site\n")
    assert "key=" in run(fw, cwd=site)
    assert "key=of the process" in run(fw, cwd=site, FW_SECRET_KEY="of the process")


def test_first_start_creates_private_key_once(project: Path, site: Path) -> None:
    """scripts/start makes secret.key (0600, git-ignored) beside fw.json (C-142)."""
    first = run(project / "scripts" / "start", cwd=site)
    key = (site / "secret.key").read_text()
    assert len(key.strip()) >= 40
    assert stat.S_IMODE((site / "secret.key").stat().st_mode) == 0o600
    assert "key=" in first
    run(project / "scripts" / "start", cwd=site)
    assert (site / "secret.key").read_text() == key


def test_simultaneous_first_starts_share_one_key(project: Path, site: Path) -> None:
    start = project / "scripts" / "start"
    running = [begin(start, cwd=site, environ={}) for _ in range(6)]
    for process in running:
        output_of(process)
    assert sorted(file.name for file in site.iterdir()) == ["fw.json", "secret.key"]


def test_start_with_given_key_creates_none(project: Path, site: Path) -> None:
    credentials = site.parent / "credentials"
    credentials.mkdir()
    (credentials / "fw_secret_key").write_text("of systemd")
    for given in (
        {"FW_SECRET_KEY": "of the process"},
        {"FW_SECRET_KEY": ""},
        {"FW_SECRET_KEY_FILE": "elsewhere"},
        {"CREDENTIALS_DIRECTORY": str(credentials)},
    ):
        run(project / "scripts" / "start", cwd=site, **given)
    assert not (site / "secret.key").exists()


def test_start_prints_commands_that_can_be_pasted(project: Path, site: Path) -> None:
    """The folder of this clone has a blank in its name."""
    first_user, stop = run(project / "scripts" / "start", cwd=site)[-2:]
    assert shlex.split(first_user.removeprefix("The first user:")) == [
        str(project / "scripts" / "fw"), "user", "add", "admin", "--email", "you@example.org",
        "--role", "System Manager",
    ]  # fmt: skip
    assert shlex.split(stop.removeprefix("To stop:")) == [str(project / "scripts" / "stop")]


def test_start_outside_site_fails_and_writes_nothing(project: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    process = begin(project / "scripts" / "start", cwd=nowhere, environ={})
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, list(nowhere.iterdir())) == (1, "", [])
    assert "fw.json" in error


PINS = tuple(f"constraints{part}.txt" for part in ("", "-dev", "-build", "-audit", "-alone"))


@pytest.mark.parametrize("name", PINS)
def test_pins_have_hashes_and_no_location(name: str) -> None:
    """The package index is set by the machine's configuration."""
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "/tmp" not in text
    blocks = [block for block in text.replace("\\\n", " ").splitlines() if "==" in block]
    assert blocks
    assert all(" --hash=sha256:" in block for block in blocks)
    assert not [line for line in text.splitlines() if line.startswith("-")]


def pins(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {line.split()[0] for line in lines if "==" in line and not line.startswith(" ")}


def test_serving_and_build_pins_are_tested_pins() -> None:
    assert pins("constraints.txt") < pins("constraints-dev.txt")
    assert pins("constraints-build.txt") < pins("constraints-dev.txt")
    assert pins("constraints-alone.txt") < pins("constraints-dev.txt")
    assert pins("constraints-otel.txt") < pins("constraints-dev.txt")


def test_pins_support_oldest_python() -> None:
    """Debian 12 has Python 3.11.2; pins are resolved by that of the developer, which is newer."""
    needs = {each.metadata["Name"]: each.metadata["Requires-Python"] for each in distributions()}
    refusing = {
        name: versions
        for name, versions in needs.items()
        if versions and not SpecifierSet(versions).contains("3.11.0")
    }
    assert refusing == {}


def test_scripts_install_by_hashes_only() -> None:
    """Clone and check install pinned libraries by hash, and the project without libraries."""
    for script in ("venv.bash", "check"):
        text = (ROOT / "scripts" / script).read_text().replace("\\\n", " ")
        installs = [
            line for line in text.splitlines() if re.search(r"pip\S* install|  install_by ", line)
        ]
        assert installs
        for line in installs:
            passed_on = line.endswith('"$@"')  # by install_by, whose callers are among the others
            itself = "--no-deps" in line and "--editable" in line
            assert "--require-hashes" in line or itself or passed_on, line


def make_from(project: Path, *pins: str) -> None:
    """Have the environment be made of these files of pins."""
    texts = [(project / name).read_text() for name in ("pyproject.toml", *pins)]
    (project / ".venv" / "made-from").write_text("".join((f"{project}\n", *texts)))


def pip_arguments(project: Path, script: str) -> list[str]:
    """Return the arguments of a script's pip calls, in order; uv is not on its path."""
    command = f". scripts/venv.bash; PATH=/usr/bin:/bin; use_venv {script}"
    done = subprocess.run(
        ["bash", "-euc", command, str(project / "scripts" / "x")], cwd=project, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return [line.removeprefix("argument=") for line in done.stderr.splitlines()]


def installs(project: Path, script: str) -> list[str]:
    """Return what a script installs: files of pins, and the project itself."""
    arguments = pip_arguments(project, script)
    return [Path(each).name for each in arguments if each.endswith((".txt", project.name))]


SERVING = ("constraints.txt", "constraints-build.txt")


def test_serving_environment_installs_only_serving_pins(project: Path) -> None:
    """A service needs a quarter of what tests and pages need (C-144)."""
    make_from(project, "pyproject.toml")
    assert installs(project, "serving") == [*SERVING, project.name]
    assert installs(project, "serving") == []
    assert installs(project, "") == ["constraints-dev.txt", project.name]
    assert installs(project, "serving") == []


def test_serving_install_compiles_no_modules(project: Path) -> None:
    """It costs at most a third of what it cost with the libraries of tests and pages."""
    make_from(project, "pyproject.toml")
    assert pip_arguments(project, "serving").count("--no-compile") == 2
    assert "--no-compile" not in pip_arguments(project, "")


def pip_command(project: Path, prelude: str = "") -> list[str]:
    """Return the command by which the environment is installed into."""
    command = f". scripts/venv.bash; {prelude} find_pip; printf '%s\\n' \"${{pip[@]}}\""
    done = subprocess.run(
        ["bash", "-euc", command, str(project / "scripts" / "x")], cwd=project, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_environment_is_installed_by_pip_of_its_base(project: Path) -> None:
    """A pip of its own would take a third of a first start."""
    python = str(project / ".venv" / "bin" / "python")
    assert pip_command(project) == [python, "-I", "-m", "pip", "--python", python]


def test_environment_with_pip_is_installed_by_it(project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    (python.parent / "pip").touch()
    assert pip_command(project) == [str(python), "-I", "-m", "pip"]


def test_environment_gets_pip_if_its_base_has_none(project: Path) -> None:
    python = str(project / ".venv" / "bin" / "python")
    without = "readlink() { echo false; };"
    assert pip_command(project, without) == [python, "-I", "-m", "pip"]


def test_full_environment_stays_full_after_update(project: Path) -> None:
    make_from(project, "pyproject.toml")
    assert installs(project, "") == ["constraints-dev.txt", project.name]
    with (project / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert installs(project, "serving") == ["constraints-dev.txt", project.name]
