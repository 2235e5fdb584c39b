"""Class names mean one thing in the whole repository, test names begin with their unit, set-up that
tests share stands in kits, tests use public names, browser tests find short texts exactly, and long
modules say why they are long."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = (
    "fw_actors", "fw_cli", "fw_client", "supervisors", "web",
    "tests", "benchmarks", "examples", "scripts",
)  # fmt: skip
PRODUCT: Final = ("fw_actors", "fw_cli", "fw_client", "supervisors", "web")
PRIVATE: Final = re.compile(r"\b_[A-Za-z]\w*")
DEFINED: Final = re.compile(r"(?:\bdef |\bclass |\bself\.|\bcls\.|^ *)(_[A-Za-z]\w*)", re.MULTILINE)
ALIAS: Final = re.compile("[A-Z][A-Za-z]*[a-z][A-Za-z]*")
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
NO_UNIT: Final = re.compile(
    r"test_(a|an|the|what|who|whoever|whom|whose|one|it|its|that|this|those|these|no|nothing|nobody"
    r"|none|each|every|all|without|with|of|after|before|as|on|in|at|many|two|three|several|both"
    r"|only|more|some|somebody|other|another|by|from|for|to|when|where|if)_"
)
SHORT_LOCATOR: Final = re.compile(
    r'(?:get_by_(?:label|text|title|placeholder)\(|\bname=)"[^"]{1,3}"(?!, exact=True)'
)


@cache
def _statements() -> list[tuple[str, ast.stmt]]:
    """Return each class, function and import of the repository with its file."""
    kinds = (ast.ClassDef, ast.Import, ast.ImportFrom, *FUNCTIONS)
    found: list[tuple[str, ast.stmt]] = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            module = file.relative_to(ROOT).as_posix()
            if _is_python(file) and not module.startswith("tests/browser/vendor/"):
                nodes = _blocks(ast.parse(file.read_text()))
                found += [(module, node) for node in nodes if isinstance(node, kinds)]
    return found


def _blocks(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements below `node`; `ast.walk` visits expressions too, and takes long."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, block, ()) if not isinstance(node, ast.expr) else ():
            if isinstance(each, ast.stmt):
                yield each
            yield from _blocks(each)


def _is_python(file: Path) -> bool:
    """The programs in scripts/ have no suffix."""
    if file.parent != ROOT / "scripts" or file.suffix:
        return file.suffix == ".py" and file.is_file()
    return file.is_file() and "python" in file.read_text().partition("\n")[0]


def _is_document_type(node: ast.ClassDef) -> bool:
    """The class name of a document type is its DocType: several test apps have a `Note`."""
    return any(ast.unparse(base).rpartition(".")[2] == "DocType" for base in node.bases)


MAX_LINES: Final = 500


def test_module_of_over_500_lines_gives_its_reason() -> None:
    """In its docstring, so that its reader knows why it was not divided."""
    silent = [
        file.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*"))
        if _is_python(file) and _is_long_without_reason(file.read_text())
    ]
    assert silent == []


def _is_long_without_reason(text: str) -> bool:
    if text.count("\n") <= MAX_LINES:  # before parsing, which takes long
        return False
    docstring = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    return "more than 500 lines because" not in docstring


def test_class_names_are_unique() -> None:
    """A reader who meets a class name knows which class it is."""
    modules = defaultdict(set)
    for module, node in _statements():
        if isinstance(node, ast.ClassDef) and not _is_document_type(node):
            modules[node.name].add(module)
    assert len(modules) > 500
    assert {name: sorted(found) for name, found in modules.items() if len(found) > 1} == {}


def test_type_aliases_mean_one_thing() -> None:
    """An alias has one definition, and is not the name of a class.

    `sync_library` has the names of `async_library`, of which it is the twin.
    """
    meanings = defaultdict(set)
    for module, text in _texts(PRODUCT):
        if module != "fw_client/sync_library.py":
            for name, meaning in _named_types(ast.parse(text)):
                meanings[name].add(meaning or module)
    assert len(meanings) > 1000
    assert {name: sorted(found) for name, found in meanings.items() if len(found) > 1} == {}


def test_names_of_tests_begin_with_their_unit() -> None:
    """A test is named `test_<unit>_<behaviour>`: CONTRIBUTING.md."""
    found = [
        f"{module}:{node.lineno}: {node.name}"
        for module, node in _statements()
        if isinstance(node, FUNCTIONS) and NO_UNIT.match(node.name)
    ]
    assert found == []


def test_shared_setup_is_imported_from_no_test_module() -> None:
    """A test module is read for its tests; what others need of it belongs in a kit."""
    found = [
        f"{module}:{node.lineno}: {imported}"
        for module, node in _statements()
        for imported in _imported(node)
        if re.match(r"tests\.(\w+\.)*test_\w+", imported)
    ]
    assert found == []


def _imported(node: ast.stmt) -> list[str]:
    """Return the dotted names that an import statement takes."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_private_names_of_the_product_are_used_by_no_test() -> None:
    """A test observes what users can: a private name may change with each refactoring."""
    private = {name for _, text in _texts(PRODUCT) for name in DEFINED.findall(text)}
    assert len(private) > 500
    found = [
        f"{module}:{line}: {name}"
        for module, text in _texts(("tests", "benchmarks", "examples"))
        for names in [private & set(PRIVATE.findall(text)) - set(DEFINED.findall(text))]
        if names
        for line, name in _used(ast.parse(text))
        if name in names
    ]
    assert found == []


def test_short_locators_of_browser_tests_are_exact() -> None:
    """The random name of a row contains any two or three letters sooner or later."""
    found = [
        f"{module}:{text[: match.start()].count(chr(10)) + 1}: {match[0]}"
        for module, text in _texts(("tests/browser",))
        for match in SHORT_LOCATOR.finditer(text)
    ]
    assert found == []


def _texts(folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each module with its text, which is searched before it is parsed: that takes long."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text()


def _named_types(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the type aliases of a module with their definitions, and its classes with none."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            meaning = ast.unparse(node.value)
            is_alias = ALIAS.fullmatch(ast.unparse(target)) and "TypeVar" not in meaning
            if is_alias:
                yield ast.unparse(target), meaning


def _used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names that a module imports, reads of an object, or patches by their text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "patch")):
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            parts = [part for text in texts if isinstance(text, str) for part in text.split(".")]
            yield from ((node.lineno, part) for part in parts)
