"""docs/add-a-predictor.md is executed: its plugin is installed in a temporary folder, checked and scored."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tilearena.conformance import synthetic_table
from tilearena.predict import cross_fit
from tilearena.splits import plan

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-predictor.md").read_text()


def files_of_the_page() -> dict[str, str]:
    """Code blocks whose first line is a comment with a file name."""
    return dict(re.findall(r"```\w+\n# (\S+\.\w+)\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, with the metadata that pip would write from its pyproject.toml."""
    for name, text in files_of_the_page().items():
        (tmp_path / name).write_text(text)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def test_page_has_a_project_a_module_and_a_check():
    assert set(files_of_the_page()) == {"pyproject.toml", "tilearena_bands.py", "check.py"}


def test_plugin_of_the_page_conforms_by_the_pages_own_check(installed):
    done = subprocess.run([sys.executable, "-P", "check.py"], cwd=installed, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_of_the_page_run(installed, monkeypatch):
    monkeypatch.setenv("TILEARENA_ROOT", str(ROOT))
    install, *commands = re.search(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)[1].splitlines()
    assert install == "pip install ."
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "tilearena"
        call = [sys.executable, "-c", "from tilearena.cli import main; main()", *arguments]
        done = subprocess.run(call, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "bands" in done.stdout


def test_plugin_of_the_page_is_scored_and_beats_the_best_constant(installed):
    table = synthetic_table(400)
    prediction = cross_fit("bands", plan("random", "quick", table), table)
    assert (prediction.status, prediction.reason, prediction.version) == ("ok", "", "1")
    log_time = np.log(np.where(np.isfinite(table.time_ns), table.time_ns, 1e9))
    rows = np.arange(len(table.problems))
    assert log_time[rows, prediction.picks[:, 0]].mean() < log_time[rows, prediction.constant_picks].mean()


def test_plugin_of_the_page_declines_what_it_cannot_learn_from(installed):
    few = synthetic_table(15)
    prediction = cross_fit("bands", plan("random", "quick", few), few)
    assert prediction.status == "declined"
    assert "needs 20 training problems" in prediction.reason
