"""examples/waves is really installed by pip into a folder of its own, and the commands of its README are run."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilearena.conformance import RULES
from tilearena.figures import log_slowdown
from tilearena.splits import plan

EXAMPLE = Path(__file__).parents[1] / "examples" / "waves"
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (EXAMPLE / "README.md").read_text(), flags=re.DOTALL)
    for line in block.splitlines()
]


def run(*command: str, cwd: Path, site: Path) -> str:
    """Standard output of a command that finds what is installed in ``site``."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), environment.get("PYTHONPATH"))))
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tilearena(*arguments: str, site: Path, checkout: Path) -> str:
    return run(sys.executable, "-Pc", "from tilearena.cli import main; main()", *arguments, cwd=checkout, site=site)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, since building leaves files beside it."""
    return shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "waves")


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip installed the package: from this machine alone, with what is installed already."""
    site = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options, ".", cwd=source, site=site)
    return site


@pytest.fixture
def module(site: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installed module."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "tilearena_waves", raising=False)
    return importlib.import_module("tilearena_waves")


def test_wheel_has_the_module_and_its_entry_point_alone(site):
    (installed,) = distributions(path=[str(site)])
    (point,) = installed.entry_points
    assert (point.group, point.name, point.value) == ("tilearena.predictors", "waves", "tilearena_waves:Waves")
    modules = {path.parts[0] for path in installed.files or () if ".dist-info" not in path.parts[0]}
    assert modules - {"__pycache__"} == {"tilearena_waves.py"}


def test_commands_of_the_readme_run(source, site, checkout):
    assert COMMANDS[0] == "pip install ."  # done by the fixture
    verbs = []
    for line in COMMANDS[1:]:
        program, *arguments = shlex.split(line)
        if program == "python":
            said = run(sys.executable, *arguments, "-p", "no:cacheprovider", cwd=source, site=site)
            assert re.search(r"\d+ passed", said)
        else:
            assert program == "tilearena"
            verbs.append(arguments[0])
            assert "waves" in tilearena(*arguments, site=site, checkout=checkout)
    assert verbs == ["predictors", "score", "score"]


def test_example_is_listed_and_keeps_every_rule(site, checkout):
    listed = json.loads(tilearena("predictors", "--json", site=site, checkout=checkout))
    (row,) = [row for row in listed if row["name"] == "waves"]
    assert (row["version"], row["kind"], row["error"]) == ("1", "predictor", "")
    rows = json.loads(tilearena("predictors", "test", "waves", "--json", site=site, checkout=checkout))
    declined = {"templates": "waves ranks only the templates that it was trained on"}
    assert [(row["rule"], row["status"], row["reason"]) for row in rows] == [
        (rule.name, "declined" if rule.name in declined else "pass", declined.get(rule.name, "")) for rule in RULES
    ]


def test_score_is_that_of_its_own_picks(site, checkout, module, recorded):
    asked = ("score", "--spec", "quick", "--device", "nvidia-h200", "--dtype", "s8", "--refit", "--json")
    names = [part for name in ("waves", "nearest", "constant") for part in ("--predictor", name)]
    waves, nearest, constant = json.loads(tilearena(*asked, *names, site=site, checkout=checkout))
    table = recorded("quick", "s8").table
    slowdown = log_slowdown(table.time_ns)
    picks = np.empty((len(slowdown), 2), dtype=int)
    for fold in plan("random", "quick", table):
        predictor = module.Waves()
        predictor.fit(fold.train, 0)
        costs = predictor.costs(table.problems[fold.test_rows], table.task)
        picks[fold.test_rows] = costs.argsort(axis=1, kind="stable")[:, :2]
    loss = np.take_along_axis(slowdown, picks, axis=1)
    assert (waves["predictor"], waves["version"], waves["status"], waves["n_failed"]) == ("waves", "1", "ok", 0)
    assert waves["n_problems"] == len(slowdown)
    assert waves["regret_mean"] == pytest.approx(np.mean(np.exp(loss[:, 0]) - 1), rel=1e-9)
    assert waves["top2"] == pytest.approx(np.mean(loss.min(axis=1) == 0), rel=1e-9)
    assert waves["regret_mean"] < nearest["regret_mean"]
    assert waves["regret_mean"] < constant["regret_mean"]
    assert waves["gap_closed"] > 0.5
