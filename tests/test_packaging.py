"""The map of folders to packages is complete, and what a user needs is in the wheel, but no recordings."""

import tomllib
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path, PurePosixPath

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SETUPTOOLS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = ("suite", "predictors", "baselines", "leaderboard", "specs")
DATA = {
    ".yaml": ("specs",),
    ".json": ("specs", "suite"),
    ".cu": ("suite",),
    ".cuh": ("suite",),
    ".h": ("suite",),
    ".typed": ("suite",),
}


def folder_of(package):
    """The folder of a package by the map, as setuptools finds it: the longest mapped prefix decides."""
    mapped = SETUPTOOLS["package-dir"]
    prefix = next(p for p in (package.rsplit(".", i)[0] for i in range(package.count(".") + 1)) if p in mapped)
    return (CHECKOUT / mapped[prefix]).joinpath(*package.removeprefix(prefix).split(".")[1:])


def shipped():
    """Data files that the globs of package-data name."""
    return {
        path
        for package, globs in SETUPTOOLS["package-data"].items()
        for g in globs
        for path in folder_of(package).glob(g)
    }


def test_packages_are_the_folders_with_an_init():
    found = {path.parent for folder in FOLDERS for path in (CHECKOUT / folder).rglob("__init__.py")}
    assert {folder_of(package) for package in SETUPTOOLS["packages"]} == found
    assert len(SETUPTOOLS["packages"]) == len(found)


def test_folders_with_python_files_are_packages():
    found = {path.parent for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*.py")}
    assert all((folder / "__init__.py").is_file() for folder in found)


@pytest.mark.parametrize("suffix", DATA)
def test_every_data_file_is_in_the_wheel(suffix):
    found = {path for folder in DATA[suffix] for path in (CHECKOUT / folder).rglob(f"*{suffix}")}
    assert found
    assert found <= shipped()


def test_recordings_and_submissions_are_not_in_the_wheel():
    assert not [path for path in shipped() if path.suffix == ".parquet" or "submissions" in path.parts]
    installed = [PurePosixPath(str(path)) for path in distribution("tilearena").files or ()]
    assert not [path for path in installed if path.suffix == ".parquet" or "submissions" in path.parts]


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("tilearena.kernels", "harness.cu"),
        ("tilearena.kernels", "gemm.cuh"),
        ("tilearena.kernels", "abi.h"),
        ("tilearena.specs", "workload.schema.json"),
        ("tilearena.specs", "space.schema.json"),
        ("tilearena.specs.workloads", "quick.yaml"),
        ("tilearena.specs.spaces", "paper9.yaml"),
        ("tilearena", "py.typed"),
        ("tilearena.picker", "models/nvidia-h200.paper9.s8.cold.json"),
    ],
)
def test_installed_package_has_its_data(package, name):
    assert (files(package) / name).is_file()


def test_version_is_the_one_of_the_package():
    import tilearena

    assert distribution("tilearena").version == tilearena.__version__
