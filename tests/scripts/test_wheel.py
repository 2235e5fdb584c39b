"""The contents of the wheel, and `fw` installed from it into an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from fw_actors import RELEASE
from tests.installed_wheel import InstalledWheel

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(installed_wheel: InstalledWheel) -> Path:
    return installed_wheel.wheel


def test_wheel_contains_only_five_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        assert "fw_actors/hashing/common_passwords.txt" in archive.namelist()
        assert "fw_actors/hashing/common_passwords.NOTICE" in archive.namelist()
    about = f"fw_actors-{wheel.name.split('-')[1]}.dist-info"
    assert tops == {"fw_actors", "fw_cli", "fw_client", "supervisors", "web", about}


def test_build_has_unique_version(tmp_path: Path) -> None:
    """Pip replaces no build by one of the same version; at a tag it is the release's (O-165)."""
    for name in ("hatch_build.py", "fw_actors/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-c", "commit.gpgsign=false")

    def commit(time: str) -> None:
        environ = {**os.environ, "GIT_COMMITTER_DATE": time}
        run(*git, "commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path, environ=environ)

    def built() -> str:
        return run(sys.executable, "hatch_build.py", cwd=tmp_path).split()[0]

    assert built() == RELEASE  # an archive without history
    run(*git, "init", "-q", cwd=tmp_path)
    commit("2026-03-04T05:06:07+02:00")
    assert built() == f"{RELEASE}.dev20260304030607"
    commit("2026-03-04T05:06:08+00:00")
    assert Version(f"{RELEASE}.dev20260304030607") < Version(built()) < Version(RELEASE)
    run(*git, "tag", f"v{RELEASE}", cwd=tmp_path)
    assert built() == RELEASE


@pytest.mark.parametrize("package", ["fw_actors", "fw_cli", "fw_client", "supervisors", "web"])
def test_wheel_has_types_of_package(wheel: Path, package: str) -> None:
    """R-23."""
    with zipfile.ZipFile(wheel) as archive:
        assert f"{package}/py.typed" in archive.namelist()


def pinned(text: str) -> dict[str, str]:
    """The versions by their names, of the pins that have a hash."""
    blocks = text.replace("\\\n", " ").splitlines()
    found = [block.split()[0] for block in blocks if "==" in block and "--hash=sha256:" in block]
    return dict(pin.split("==") for pin in found)


def requirements(wheel: Path) -> list[Requirement]:
    """Return the wheel's requirements, with and without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(about).decode().splitlines()
    specifiers = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [Requirement(each) for each in specifiers]


def needed(wheel: Path, *extras: str) -> dict[str, str]:
    """The libraries that the wheel asks for and those that they ask for, with their versions."""
    todo = [(each, extra) for each in requirements(wheel) for extra in extras]
    found: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        library = distribution(name)
        found[name] = library.version
        for extra_name in {"", *requirement.extras}:
            if (name, extra_name) not in done:
                done.add((name, extra_name))
                todo += [(Requirement(each), extra_name) for each in library.requires or ()]
    return found


def test_wheel_contains_pins_of_exactly_its_needs(wheel: Path) -> None:
    """`pip install --require-hashes -r constraints.txt` then installs the tested versions."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("fw_actors/constraints.txt").decode()
    assert text == (ROOT / "constraints.txt").read_text()
    assert pinned(text) == needed(wheel, "service", "postgres", "console", "bcrypt")


def test_extra_all_combines_service_extras(wheel: Path) -> None:
    assert needed(wheel, "all") == needed(wheel, "service", "postgres", "console", "bcrypt")


def test_extra_client_requires_only_httpx(wheel: Path) -> None:
    """The extra brings all that `fw_client` imports (H-220)."""
    added = {each.name for each in requirements(wheel) if str(each.marker) == 'extra == "client"'}
    assert added == {"httpx"}


UNUSABLE = [  # an import or a command fails with it, or pip finds no matching library
    ("click", "8.3.1"), ("jinja2", "3.1.1"), ("prometheus-client", "0.23.0"), ("psycopg", "3.2.0"),
]  # fmt: skip


@pytest.mark.parametrize(("library", "version"), UNUSABLE)
def test_wheel_excludes_unusable_library_versions(wheel: Path, library: str, version: str) -> None:
    """scripts/floors tests the allowed versions; this test keeps its findings (O-41)."""
    specifiers = [each.specifier for each in requirements(wheel) if each.name == library]
    assert specifiers
    assert all(version not in each for each in specifiers)


@pytest.mark.parametrize("library", ["h11", "quart", "quart-schema", "quart-trio", "werkzeug"])
def test_wheel_limits_libraries_used_beyond_their_interface(wheel: Path, library: str) -> None:
    specifiers = [each.specifier for each in requirements(wheel) if each.name == library]
    assert specifiers
    assert all("<" in {part.operator for part in each} for each in specifiers)


RUNTIME_ALONE = {"attrs", "idna", "msgspec", "outcome", "sniffio", "sortedcontainers", "trio"}


def test_wheel_without_extras_requires_only_runtime(wheel: Path, tmp_path: Path) -> None:
    """trio, outcome and msgspec with what trio needs; `fw` then says what to install."""
    assert set(needed(wheel, "")) == RUNTIME_ALONE
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in RUNTIME_ALONE:
        for file in distribution(name).files or ():
            top = libraries / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not top.exists():
                top.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=tmp_path)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    options = ("--quiet", "--no-compile", "--no-index", "--no-deps")
    run(*pip, "install", *options, str(wheel), cwd=tmp_path)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    python = str(venv / "bin" / "python")
    program = "import fw_actors.runtime.testing, supervisors, trio; print(trio.__name__)"
    assert run(python, "-P", "-c", program, cwd=tmp_path) == "trio\n"
    completed = subprocess.run(
        [str(venv / "bin" / "fw"), "version"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stderr == "fw: fw needs the library click: pip install 'fw-actors[service]'\n"


def test_fw_works_from_wheel_in_empty_folder(
    installed_wheel: InstalledWheel, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    environ = installed_wheel.environ()
    wheel, venv = installed_wheel.wheel, installed_wheel.venv
    fw = str(venv / "bin" / "fw")
    version = wheel.name.split("-")[1]
    said = run(fw, "version", cwd=folder, environ=environ)
    assert re.fullmatch(rf"fw {re.escape(version)}( \(commit \w{{12}}\))?\n", said)
    run(fw, "init", "--app", "first_app", cwd=folder, environ=environ)
    output = run(fw, "doctor", cwd=folder, environ=environ)
    assert "FW_SECRET_KEY is set" in output
    assert "0 problems" in output
    where = "import web.app, fw_cli.main; print(web.app.__file__, fw_cli.main.__file__)"
    python = str(venv / "bin" / "python")
    found = run(python, "-P", "-c", where, cwd=folder, environ=environ).split()
    assert all(path.startswith(str(venv)) for path in found)
