"""What the plugin host knows of a plugin's code without running it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilearena.errors import PredictorError
from tilearena.plugins import code_fingerprint, discover

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
    (folder / "theirs_alone.py").write_text(POISON + "# changed\n")
    assert code_fingerprint("theirs") not in (before, None)


@pytest.mark.parametrize("module", ["theirs_pack", "theirs_pack.plugin"])
def test_code_fingerprint_in_a_package_is_of_all_modules_beside_it(install, module):
    package = install(module) / "theirs_pack"
    package.mkdir()
    (package / "__init__.py").write_text(POISON if module == "theirs_pack" else "")
    (package / "plugin.py").write_text(POISON)
    (package / "features.py").write_text(POISON)
    seen = {code_fingerprint("theirs")}
    (package / "features.py").write_text(POISON * 2)
    seen.add(code_fingerprint("theirs"))
    (package / "features.py").rename(package / "shapes.py")
    seen.add(code_fingerprint("theirs"))
    (package / "shapes.py").unlink()
    seen.add(code_fingerprint("theirs"))
    assert len(seen) == 4
    assert None not in seen
    (package / "notes.txt").write_text("no code")
    assert code_fingerprint("theirs") in seen


@pytest.mark.parametrize("module", ["theirs_gone", "theirs_gone.plugin", "json.no_such", "math", "theirs_bad.plugin"])
def test_code_without_source_has_no_fingerprint(install, module):
    package = install(module) / "theirs_bad"
    package.mkdir()
    (package / "__init__.py").write_text(POISON)
    (package / "plugin.py").write_text(POISON)
    assert code_fingerprint("theirs") is None


def test_code_fingerprint_is_shared_by_the_modules_of_one_package():
    assert code_fingerprint("gbdt") == code_fingerprint("mlp")
    assert code_fingerprint("gbdt") != code_fingerprint("oracle")


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
