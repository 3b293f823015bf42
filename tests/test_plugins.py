"""What the plugin host knows of a plugin's code without running it."""

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tilearena.errors import PredictorError
from tilearena.plugin_code import code_fingerprint
from tilearena.plugins import discover

POISON = "raise RuntimeError('this was run')\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """An entry point ``theirs`` to a module (by name) that may not be run; returns the folder on the import path."""

    def _install(module: str) -> Path:
        info = tmp_path / "theirs-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[tilearena.predictors]\ntheirs = {module}:Plugin\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in [name for name in sys.modules if name.split(".")[0] == module.split(".")[0]]:
            monkeypatch.delitem(sys.modules, name)
        return tmp_path

    return _install


def test_code_fingerprint_of_a_module_is_of_its_file_alone(install):
    folder = install("theirs_alone")
    (folder / "theirs_alone.py").write_text(POISON)
    before = code_fingerprint("theirs")
    (folder / "stranger.py").write_text(POISON)
    assert code_fingerprint("theirs") == before
    (folder / "theirs_alone.py").write_text(POISON + "changed = 1\n")
    assert code_fingerprint("theirs") not in (before, None)


@pytest.mark.parametrize("module", ["theirs_pack", "theirs_pack.plugin"])
@pytest.mark.parametrize(
    "statement",
    [
        "from theirs_pack import features",
        "import theirs_pack.features",
        "from theirs_pack.features import count",
        "from . import features",
        "from .features import *",
        "def f():\n    from . import features as g\n    return g",
    ],
)
def test_code_fingerprint_is_of_what_is_imported_of_its_package_and_of_nothing_else(install, module, statement):
    package = install(module) / "theirs_pack"
    package.mkdir()
    plugin = package / ("__init__.py" if module == "theirs_pack" else "plugin.py")
    (package / "__init__.py").write_text("")
    plugin.write_text(POISON + statement + "\n")
    (package / "features.py").write_text(POISON + "from . import deeper\n")
    (package / "deeper").mkdir()
    (package / "deeper" / "__init__.py").write_text(POISON)
    seen = {before := code_fingerprint("theirs")}
    (package / "stranger.py").write_text(POISON)
    (package / "notes.txt").write_text("no code")
    assert code_fingerprint("theirs") == before
    for changed in (plugin, package / "features.py", package / "deeper" / "__init__.py"):
        changed.write_text(changed.read_text() + "changed = 1\n")
        seen.add(code_fingerprint("theirs"))
    (package / "features.py").unlink()
    seen.add(code_fingerprint("theirs"))
    assert len(seen) == 5
    assert None not in seen


def test_code_fingerprint_knows_the_package_and_what_is_built_on_of_ours(install):
    package = install("theirs_pack.plugin") / "theirs_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text("import json, tilearena.records\n")
    seen = {code_fingerprint("theirs")}
    (package / "__init__.py").write_text("runs = 'first'\n")
    seen.add(code_fingerprint("theirs"))
    (package / "plugin.py").write_text("from tilearena.predictors.gbdt import Gbdt\n")
    seen.add(code_fingerprint("theirs"))
    (package / "plugin.py").write_text("from tilearena.predictors.mlp import Mlp  # 24\n")  # as long
    seen.add(code_fingerprint("theirs"))
    assert len(seen) == 4


def test_code_fingerprint_is_of_the_whole_top_level_package_and_runs_nothing_of_it(install):
    """A helper two folders up; packages that would end the process if they were run."""
    package = install("theirs_pack.sub.plugin") / "theirs_pack"
    (package / "sub").mkdir(parents=True)
    ends = "raise SystemExit('this was run')\n"
    (package / "__init__.py").write_text(ends)
    (package / "sub" / "__init__.py").write_text(ends)
    (package / "sub" / "plugin.py").write_text("from theirs_pack.lib import f\nfrom .. import more\n")
    (package / "lib.py").write_text(ends)
    (package / "more.py").write_text(ends)
    seen = {code_fingerprint("theirs")}
    for changed in ("lib.py", "more.py", "__init__.py", "sub/__init__.py", "sub/plugin.py"):
        path = package / changed
        path.write_text(path.read_text() + "changed = 1\n")
        seen.add(code_fingerprint("theirs"))
    assert len(seen) == 6
    assert not [name for name in sys.modules if name.startswith("theirs_pack")]
    assert code_fingerprint("gbdt") is not None  # nor is it run for another's sake


PLAIN = """
class Plugin:
    name = "theirs"

    def costs(self, problems, task):
        return {"a": 1, "b": [*problems, f"{task!r:>{3}}"]}
"""
COMMENTED = '''"""What it does."""
# why


class Plugin:
    """It ranks."""
    name = "theirs"  # a name
    "What the name is for."
    def costs(
        self, problems, task
    ):
        """Costs.

        # no comment
        """
        return {"a": 1,
                'b': [*problems, f"{task!r:>{3}}"]}
'''


def test_code_fingerprint_knows_no_comments_docstrings_and_layout_but_all_that_is_run(install):
    file = install("theirs_alone") / "theirs_alone.py"

    def fingerprint(text):
        file.write_text(text)
        return code_fingerprint("theirs")

    plain = fingerprint(PLAIN)
    assert fingerprint(COMMENTED) == plain
    assert fingerprint(PLAIN.replace('"theirs"', 'u"theirs"')) == plain
    changes = ('"theirs"', '"thei rs"'), ("1", "2"), ("1", "1.0"), ("1", "True"), ("*problems", "problems"), (">", "<")
    seen = {fingerprint(PLAIN.replace(old, new)) for old, new in changes}
    seen |= {fingerprint(PLAIN + "None"), fingerprint(PLAIN + "pass"), fingerprint(PLAIN + "'#'.upper()")}
    assert len(seen | {plain}) == len(changes) + 4


def test_code_fingerprint_is_the_same_by_every_version_of_python(install):
    """Computed by Python 3.11, 3.12 and 3.13, whose `ast.dump` differ on it."""
    (install("theirs_alone") / "theirs_alone.py").write_text(PLAIN)
    assert code_fingerprint("theirs") == "ebcaffff527b2b21"


@pytest.mark.parametrize(
    "large",
    [
        f"x = {' + '.join(['y'] * 2000)}",
        "if x == 0:\n    y = 0\n" + "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(1, 500)),
        f"x = 0x{'5' * 5000}",
        "x = '\\d'",
    ],
    ids=["sum", "branches", "digits", "escape"],
)
def test_code_fingerprint_follows_imports_of_large_sources_and_warns_of_nothing(install, large):
    package = install("theirs_pack.plugin") / "theirs_pack"
    package.mkdir()
    for name, text in (("__init__", ""), ("plugin", f"from . import helper\n{large}\n"), ("helper", "w = 1\n")):
        (package / f"{name}.py").write_text(text)
    with warnings.catch_warnings(action="error"):
        seen = {code_fingerprint("theirs")}
        (package / "plugin.py").write_text(f"from . import helper  # a word\n{large}\n")
        assert {code_fingerprint("theirs")} == seen
        (package / "helper.py").write_text("w = 2\n")
        seen.add(code_fingerprint("theirs"))
    assert len(seen) == 2


@pytest.mark.parametrize("text", ["def f(:", "\0", "from ..... import x\n", "from . import\n"])
def test_code_that_does_not_parse_has_a_fingerprint_too(install, text):
    package = install("theirs_pack.plugin") / "theirs_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(text)
    seen = {None, code_fingerprint("theirs")}
    (package / "plugin.py").write_text(text + "1")
    assert code_fingerprint("theirs") not in seen


@pytest.mark.parametrize("module", ["theirs_gone", "theirs_gone.plugin", "json.no_such", "math"])
def test_code_without_source_has_no_fingerprint(install, module):
    install(module)
    assert code_fingerprint("theirs") is None


def test_code_fingerprints_of_the_built_in_ones_differ_unless_one_is_made_of_the_other():
    names = ("default", "heuristic", "gbdt", "mlp", "mlp-features", "picker", "constant", "nearest", "oracle")
    assert len({code_fingerprint(name) for name in names}) == len(names)


def test_code_fingerprint_of_an_unknown_predictor_is_the_users_mistake():
    with pytest.raises(PredictorError, match=r"no predictor named 'nobody'; installed: .*gbdt"):
        code_fingerprint("nobody")


@pytest.mark.parametrize(
    "point", ["../x = theirs:Plugin", "a b = theirs:Plugin", "x[/red] = theirs:Plugin", "x = 1:::y"]
)
def test_malformed_entry_point_is_named(tmp_path, monkeypatch, point):
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[tilearena.predictors]\n{point}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name, value = point.split(" = ")
    with pytest.raises(PredictorError, match=re.escape(f"the plugin {name!r} = {value!r} is no name of")):
        discover()
