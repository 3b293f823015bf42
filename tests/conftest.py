"""What all tests share: the committed recordings, and a synthetic arena.

The arena has recordings and submissions from a formula, on a device that says so; none measured. Tests marked ``gpu``
are deselected, not skipped, where there is no GPU: they are another set, run on a GPU box.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

# A shell without job control has Ctrl-C ignored by what it puts in the background, and by all that comes of it: tests
# of Ctrl-C would find it ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what tests share beside fixtures lies in modules here
sys.path.insert(0, str(Path(__file__).parent))

from standin import DEVICE, FOLDER, formula_header, formula_ns, templates

from tilearena import cli, dataset, judge, plugins, submission
from tilearena.dataset import Recording
from tilearena.device import visible_devices
from tilearena.errors import NoGpuError
from tilearena.judge import Sources, cublaslt_ns
from tilearena.plugin_code import code_fingerprint
from tilearena.records import Dtype, Measurement, ProtocolName, Status
from tilearena.root import find_path, path_for
from tilearena.score import Key, constant_pick, rank, score
from tilearena.splits import Split, groups_for, plan, train_spec_for
from tilearena.submission import Scored
from tilearena.table import Ints

#: Modules whose fixtures every test may ask for.
pytest_plugins = [
    "fake_library",
    "fake_nvcc",
    "faking",
    "formula",
    "published",
    "short_session",
    "small_recording",
    "standin_hand",
    "submitted",
]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def workers_find_the_standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Worker processes import the stand-in, and write what they keep below the test's own folder."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _vendor_row(m: int, n: int, k: int, candidate: int, time_ns: int) -> Measurement:
    shape = {"m": m, "n": n, "k": k, "candidate": candidate}
    if m < 17:
        return Measurement(**shape, status=Status.LAUNCH_FAILED, reason="fewer than 17 rows")
    return Measurement(**shape, status=Status.OK, elapsed_ns=(time_ns,) * 3, launches=1)


@dataclass(frozen=True)
class Arena:
    """A root folder with recordings, and a way to submit picks of a chosen quality."""

    root: Path

    def shapes(self, n: int, seed: int) -> Ints:
        """Log-uniform int64 [n, 3]."""
        logs = np.random.default_rng(seed).uniform([0, 7, 7], [13, 13.5, 13.5], size=(n, 3))
        return np.maximum(np.round(2**logs / [1, 128, 512]).astype(np.int64), 1) * [1, 128, 512]

    def key(self, spec: str, dtype: Dtype, protocol: ProtocolName = "cold", split: Split = "random") -> Key:
        """A key of the synthetic device; the predictor is ``gbdt``."""
        return Key(
            op="gemm",
            spec=spec,
            space="paper9",
            dtype=dtype,
            protocol=protocol,
            device=DEVICE.slug,
            split=split,
            predictor="gbdt",
            version="1",
            train_spec=train_spec_for(split, spec),
            support="emulated" if dtype == "s4" else "native",
        )

    def record(
        self,
        spec: str,
        dtype: Dtype,
        shapes: Ints,
        *,
        protocol: ProtocolName = "cold",
        seed: int = 0,
        repeat: bool = False,
        vendor: float | None = None,
        versions: dict[str, str] | None = None,
    ) -> Path:
        """Write a recording of the formula with 1 % of noise.

        With ``vendor``, the candidate ``cublaslt`` takes so many times the best template's time; it fails below M = 17.
        """
        rng = np.random.default_rng(seed)
        space = templates(dtype)
        rows = []
        for m, n, k in shapes.tolist():
            for i, template in enumerate(space):
                times = formula_ns((m, n, k), template) * (1 + 0.01 * rng.standard_normal(3))
                sample = tuple(max(1, int(t)) for t in times)
                rows.append(Measurement(m=m, n=n, k=k, candidate=i, status=Status.OK, elapsed_ns=sample, launches=1))
            if vendor:
                best = int(vendor * min(formula_ns((m, n, k), template) for template in space))
                rows.append(_vendor_row(m, n, k, len(space), best))
        header = formula_header(spec, dtype, protocol, seed=seed, vendor=bool(vendor), versions=versions or {})
        path = path_for(self.root, header, repeat=repeat)
        dataset.write(path, header, dataset.rows_from(rows))
        return path

    def scored(self, key: Key, noise: float, *, reason: str = "") -> Scored:
        """Rank by the recorded times under a log-normal error; nothing is picked if there is a ``reason`` to fail."""
        sources = Sources.open(self.root, key)
        table = sources.test.table
        error = noise * np.random.default_rng(1).standard_normal(table.time_ns.shape)
        constant = np.empty(len(table.problems), dtype=np.int64)
        for fold in plan(key.split, key.spec, table, sources.train.table, seed=0):
            constant[fold.test_rows] = constant_pick(fold.train)
        ranked = {"constant": constant[:, None], "default": np.full((len(constant), 1), table.task.default)}
        picks = ranked.get(key.predictor, rank(np.log(table.time_ns) + error)[:, :8])
        if reason:
            picks = np.full_like(picks, -1)
        judged = score(
            table,
            picks,
            key=key,
            groups=groups_for(key.spec, table.problems),
            repeat=sources.repeat.table if sources.repeat else None,
            noise_floor=sources.test.header.noise_floor,
            predict_us=None if reason else 3.5,
            constant_picks=constant,
            vendor_ns=cublaslt_ns(sources.test),
            reason=reason,
            seed=0,
        )
        code = code_fingerprint(key.predictor) if key.predictor in plugins.discover() else None
        return Scored(judged, picks, sources.fingerprints, 0, code)

    def submit(self, predictor: str, noise: float, keys: Sequence[Key], *, reason: str = "") -> Path:
        """Submit one predictor's picks for ``keys``."""
        scored = [self.scored(key.model_copy(update={"predictor": predictor}), noise, reason=reason) for key in keys]
        return submission.write(self.root, scored, submitter="synthetic", created_at=NOW)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """40 problems of s8 cold (recorded twice) and of s4 cold, and 12 of networks."""
    arena = Arena(tmp_path)
    shapes = arena.shapes(40, seed=0)
    arena.record("lowbit-random", "s8", shapes)
    arena.record("lowbit-random", "s8", shapes, seed=1, repeat=True)
    arena.record("lowbit-random", "s4", shapes)
    arena.record("networks", "s8", arena.shapes(12, seed=5))
    return arena


@pytest.fixture
def ships_anew() -> Iterator[None]:
    """What ships is looked up again, since the test changes it, and once more afterwards."""
    lookups = (judge._shipped_workload, judge._shipped_space)
    for lookup in lookups:
        lookup.cache_clear()
    yield
    for lookup in lookups:
        lookup.cache_clear()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder that holds the committed recordings."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def recorded(checkout: Path) -> Callable[..., Recording]:
    """Reads a committed recording of the H200: (spec, dtype, protocol)."""

    def _recorded(spec: str = "quick", dtype: Dtype = "s8", protocol: ProtocolName = "cold") -> Recording:
        return dataset.read(find_path(checkout, "nvidia-h200", spec, "paper9", dtype, protocol))

    return _recorded


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkout: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process, in the checkout: (exit code, standard output, standard error)."""
    monkeypatch.chdir(checkout)
    monkeypatch.delenv("TILEARENA_ROOT", raising=False)

    def _run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilearena", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return _run


@pytest.fixture
def child(checkout: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a command in a process of its own, in the checkout, which sees no GPU."""

    def _child(*arguments: object, **environment: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", "from tilearena.cli import main; main()", *map(str, arguments)]
        # what pytest sets for its workers would reach the pytest that `bench` starts
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != "TILEARENA_ROOT"}
        added = {"CUDA_VISIBLE_DEVICES": ""} | {k: str(v) for k, v in environment.items()}
        return subprocess.run(command, cwd=checkout, env=inherited | added, capture_output=True, text=True, timeout=300)

    return _child


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a predictor (its name, the body of its ``costs``) for this process and for child processes."""

    def _install(name: str, body: str) -> None:
        folder = tmp_path / f"site-{name}"
        info = folder / f"{name}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[tilearena.predictors]\n{name} = {name}_plugin:Plugin\n")
        (folder / f"{name}_plugin.py").write_text(
            f"import numpy as np\n\nclass Plugin:\n    name, version = {name!r}, '1'\n"
            "    def fit(self, train, seed):\n        self.train = train\n"
            f"    def costs(self, problems, task):\n        {body}\n"
        )
        monkeypatch.delitem(sys.modules, f"{name}_plugin", raising=False)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    return _install


def _has_gpu() -> bool:
    try:
        return bool(visible_devices())
    except NoGpuError:
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, there in (("gpu", _has_gpu), ("nvmmh", lambda: find_spec("nvMatmulHeuristics") is not None)):
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and not there():
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]
