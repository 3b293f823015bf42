"""Fingerprint of a predictor's source: of the modules that its answers come from, read and not run."""

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path

from tilearena.plugins import find

#: Where the modules of each package lie.
Folders = Mapping[str, list[Path]]
#: What our own predictors and baselines are made of, and others may be.
OURS = (
    "tilearena.baselines",
    "tilearena.picker.able",
    "tilearena.picker.grow",
    "tilearena.picker.prune",
    "tilearena.picker.terms",
    "tilearena.predictors",
)


def code_fingerprint(name: str) -> str | None:
    """16 hex digits of SHA-256 over the code of the predictor ``name``; None where there is no source to read.

    That is its module and what this imports, directly or not, of its own top-level package and of ``OURS``. Nothing
    of the plugin's is run. What is not in it: comments, docstrings (even if code reads them) and layout, so that these
    can be mended without fitting anew; other libraries and their versions, the rest of tilearena, files that are no
    Python, and what is imported by a name that is computed.

    Raises:
        PredictorError: not installed.
    """
    first = find(name).module
    top = first.partition(".")[0]
    folders = _folders(OURS if top == "tilearena" else (*OURS, top))
    sources: dict[str, bytes] = {}
    waiting = [first]
    while waiting:
        module = waiting.pop()
        path = None if module in sources else _source(module, folders)
        if path is not None:
            sources[module], tree = _read(path.read_bytes())
            waiting += _imported(tree, module if path.name == "__init__.py" else module.rpartition(".")[0])
    if first not in sources:
        return None
    digest = hashlib.sha256()
    for module, content in sorted(sources.items()):
        digest.update(f"{module} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _read(content: bytes) -> tuple[bytes, ast.Module]:
    """What counts of a source, and its syntax tree; all of it, and an empty one, where Python cannot parse it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of its author's, not of the user's
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        return content, ast.Module([], [])
    return "\n".join(_written(tree)).encode(), tree


def _written(tree: ast.Module) -> Iterator[str]:
    """A syntax tree from the root on, however deep, the same by Python 3.11 to 3.13 but for rare f-strings.

    `ast.dump` shows what is empty by some versions alone, and calls itself for every level.
    """
    waiting: list[tuple[object, object]] = [(tree, None)]
    while waiting:
        node, above = waiting.pop()
        parts: list[object] = []
        if isinstance(node, ast.AST):
            fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
            fields.pop("kind", None)  # u"" rather than "", of which Python 3.11 knows less
            above, parts = node, [*fields.values()]
            yield f"{type(node).__name__} {' '.join(fields)}"
        elif isinstance(node, list):
            parts = [part for part in node if not _does_nothing(part, above)]
            yield str(len(parts))
        else:  # a number of many digits has no decimal text
            yield hex(node) if type(node) is int else ascii(node)
        waiting += [(part, above) for part in reversed(parts)]


def _does_nothing(part: object, above: object) -> bool:
    """A statement that is a string, as a docstring is, or an empty piece of an f-string, as Python 3.12 has some."""
    if isinstance(part, ast.Expr):
        return isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
    return isinstance(above, ast.JoinedStr) and isinstance(part, ast.Constant) and part.value == ""


def _folders(packages: Iterable[str]) -> Folders:
    """Of each package, or of a module that lies in none: its folders, or its file."""
    found = {}
    for package in packages:
        spec = _spec(package)
        if spec is not None and spec.submodule_search_locations is not None:
            found[package] = [Path(place) for place in spec.submodule_search_locations]
        elif spec is not None and spec.origin is not None:
            found[package] = [Path(spec.origin)]
    return found


def _spec(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except (ImportError, ValueError):  # a top-level name runs nothing, and the others are ours
        return None


def _source(module: str, folders: Folders) -> Path | None:
    """The Python file of a module below ``folders``, None if it is not there."""
    for package, places in folders.items():
        if f"{module}.".startswith(f"{package}."):
            inner = module[len(package) :].replace(".", "/").lstrip("/")
            for place in places:
                paths = (place / inner / "__init__.py", place / f"{inner}.py" if inner else place)
                if found := next((path for path in paths if path.suffix == ".py" and path.is_file()), None):
                    return found
    return None


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Names that a module of ``package`` imports anywhere, and the package; some may not be of modules."""
    if package:
        yield package  # importing a module runs its package first
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # from beyond the top package
                continue
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
