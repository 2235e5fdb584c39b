"""Constructs that the code of the service must not contain, checked in its source."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("fw_actors", "fw_cli", "fw_client", "supervisors", "web")

# Where `fw eval`, `fw exec` and scripts of the operator are run; no request reaches them.
RUNS_CODE = {"fw_cli/evaluation.py", "fw_cli/scripts.py", "fw_cli/shell.py"}
UNSAFE_READERS = {
    "pickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "yaml",
    "xml",
    "lxml",
    "jsonpickle",
}
FOREIGN_MEMORY = {"ctypes", "cffi", "mmap"}
RANDOMNESS = {"random", "secrets", "uuid"}
CRYPTOGRAPHY = {"AESGCM", "HKDF", "SHA256", "InvalidTag", "x509"}  # x509: dates of certificates
PATTERN_MAKERS = {
    "compile",
    "match",
    "search",
    "fullmatch",
    "sub",
    "subn",
    "split",
    "findall",
    "finditer",
}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the service, by its path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def nodes() -> dict[str, tuple[ast.AST, ...]]:
    """All nodes of every module."""
    return {path: tuple(ast.walk(tree)) for path, tree in trees().items()}


def found(matches: Callable[[ast.AST], bool]) -> set[str]:
    """The modules in which a node matches."""
    return {path for path, held in nodes().items() if any(map(matches, held))}


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each imported module with each imported name, "" for the module itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def importers(packages: set[str]) -> set[str]:
    """The modules that import one of `packages`, or a name from it."""
    return {
        path
        for path, tree in trees().items()
        if any(name.partition(".")[0] in packages for name, _ in imported(tree))
    }


def calls(node: ast.AST, *names: str) -> bool:
    """Whether a node calls a builtin of one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def attribute_call(node: ast.AST, owner: str) -> str | None:
    """The name of the function called on `owner` (`re.compile`), or None."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    value = node.func.value
    return node.func.attr if isinstance(value, ast.Name) and value.id == owner else None


def test_trees_include_product_modules() -> None:
    assert len(trees()) > 150


def test_code_is_evaluated_only_by_operator_commands() -> None:
    assert found(lambda node: calls(node, "eval", "exec", "compile", "__import__")) == RUNS_CODE


def test_code_starts_no_shell() -> None:
    def starts_shell(node: ast.AST) -> bool:
        if attribute_call(node, "os") in {"system", "popen", "spawnl", "spawnv", "execl"}:
            return True
        return isinstance(node, ast.keyword) and node.arg == "shell"

    assert found(starts_shell) == set()


def test_code_uses_no_unsafe_deserializer() -> None:
    assert importers(UNSAFE_READERS) == {
        # The configuration of a serving process comes from its own parent, through a pipe.
        "supervisors/service/control_channel.py",
        "supervisors/service/processes.py",
    }


def test_code_imports_no_foreign_memory_module() -> None:
    assert importers(FOREIGN_MEMORY) == {
        # The memory that the processes of one service share is read and written in whole words.
        "fw_actors/webhooks/subscriptions.py",
        "supervisors/service/fork_server.py",  # calls prctl(2) with numbers only
    }


def test_randomness_has_one_source() -> None:
    """O-161."""
    urandom = found(lambda node: attribute_call(node, "os") in {"urandom", "getrandom"})
    assert importers(RANDOMNESS) | urandom == {
        "fw_actors/runtime/clock.py",
        "fw_client/randomness.py",  # a program of its own, which imports nothing of fw_actors
        "fw_actors/runtime/testing.py",  # of the test kit: a seed orders trio's tasks, no more
    }


FURTHER_HASHES = {
    "fw_actors/hashing/breached.py": {"sha1"},  # by which lists of breached passwords are sorted
    "fw_actors/hashing/imported.py": {"scrypt", "pbkdf2_hmac"},  # until the first sign-in
}


def hashes_used(file: str, tree: ast.Module) -> set[str]:
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "hashlib"
    }
    used |= {name for module, name in imported(tree) if module == "hashlib"}
    return used - {""} - FURTHER_HASHES.get(file, set())


def test_lint_refuses_time_randomness_and_environment() -> None:
    """O-171: modules take a Clock, an Entropy and a Config."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = lint["flake8-tidy-imports"]["banned-api"]
    assert banned.keys() >= {"os.environ", "os.getenv", "time.time", "random", "secrets"}
    assert "TID" in lint["select"]


def test_hashes_are_sha_256_and_blake2b_alone() -> None:
    used = {name for file, tree in trees().items() for name in hashes_used(file, tree)}
    assert used == {"sha256", "blake2b"}


def test_encryption_is_aes_gcm_by_one_library() -> None:
    used = {
        name
        for tree in trees().values()
        for module, name in imported(tree)
        if module.partition(".")[0] in {"cryptography", "Crypto", "Cryptodome", "nacl"}
    }
    assert used == CRYPTOGRAPHY


def _is_escaped(node: ast.Call) -> bool:
    """Whether a call is `re.escape(…)`, or `"…".join(map(re.escape, …))`."""
    if ast.unparse(node.func) == "re.escape":
        return True
    joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
    return joins and ast.unparse(node.args[0]).startswith("map(re.escape, ")


def _is_constant_pattern(node: ast.expr) -> bool:
    """Whether an expression is made of literals, constants (in capitals) and escaped texts."""
    if isinstance(node, ast.JoinedStr):
        parts = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
        return all(map(_is_constant_pattern, parts))
    if isinstance(node, ast.BinOp):
        return _is_constant_pattern(node.left) and _is_constant_pattern(node.right)
    if isinstance(node, ast.Call):
        return _is_escaped(node)
    if isinstance(node, ast.Name):
        return node.id.isupper()
    return isinstance(node, ast.Constant)


def test_regular_expressions_are_constant() -> None:
    def is_made(node: ast.AST) -> bool:
        if attribute_call(node, "re") not in PATTERN_MAKERS:
            return False
        assert isinstance(node, ast.Call)
        return not _is_constant_pattern(node.args[0])

    assert found(is_made) == set()


def test_templates_are_files_of_the_package() -> None:
    names = {
        (module, name)
        for tree in trees().values()
        for module, name in imported(tree)
        if module.partition(".")[0] == "jinja2" or (module, name) == ("string", "Template")
    }
    expected = {"DictLoader", "Environment", "StrictUndefined"}
    assert names <= {("jinja2", name) for name in expected}
    assert (
        found(lambda node: isinstance(node, ast.Attribute) and node.attr == "from_string") == set()
    )


def test_format_strings_are_constant() -> None:
    """`.format` of what is no literal: the constant sentences of a step, and loggers' own."""

    def formats(node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return False
        return node.func.attr in {"format", "format_map"} and not isinstance(
            node.func.value, ast.Constant
        )

    assert found(formats) == {
        "fw_actors/http/exchange.py",
        "fw_cli/output.py",  # msgspec.json.format
        "supervisors/service/logs.py",  # logging.Handler.format
    }
