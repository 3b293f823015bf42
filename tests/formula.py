"""A GPU and CUPTI that are a formula, for the programs that prove the clock; no time here is a measurement."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import clock_cupti
import clock_setup
import pytest
import standin
from cupti_records import Kernel

from tilearena import live
from tilearena.dataset import Candidate
from tilearena.provenance import Clock
from tilearena.records import Device, Problem, Protocol, Status, Template
from tilearena.runner import Begun, Failure, Trial
from tilearena.spec import load_space

EMPTY_NS, LAUNCH_NS, GAP_NS = 1_000, 10_000, 500
DEVICE = standin.DEVICE.model_copy(update={"slug": "formula", "product": "Formula"})


class FormulaRunner:
    """Every launch of template t takes LAUNCH_NS * (1 + t); an interval adds EMPTY_NS; CUPTI sees the same launches."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        templates: tuple[Template, ...] = load_space("paper9").templates(problems[0].dtype, problems[0].bit_op)
        self.candidates = tuple(Candidate(id=t.id, template=t) for t in templates)
        self.device, self.default, self.versions = DEVICE, 1, {"cuda": "0"}
        self.kernels, self.proved, self.now_ns = [], [], 0

    def __enter__(self) -> "FormulaRunner":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def clock(self) -> Clock:
        self.run("_ZN9tilearena10do_nothingEv", 2 * EMPTY_NS)
        return Clock(empty_interval_ns=EMPTY_NS, empty_launch_ns=3 * EMPTY_NS, resolution_ns=1)

    def prove(
        self, problem: Problem, protocol: Protocol, which: Sequence[int], *, launches: int = 0, held: bool = True
    ) -> "FormulaTrial":
        self.proved.append((protocol.name, tuple(which), launches, held))
        return FormulaTrial(self, problem, protocol, which, launches or (5 if protocol.name == "hot" else 1))

    def run(self, name: str, time_ns: int) -> None:
        self.kernels.append(Kernel(self.now_ns, self.now_ns + time_ns, name))
        self.now_ns += time_ns


class FormulaTrial(Trial):
    """Candidates ``wrong`` fail the proof on a problem."""

    wrong: frozenset[tuple[Problem, int]] = frozenset()

    def __init__(
        self, runner: FormulaRunner, problem: Problem, protocol: Protocol, which: Sequence[int], launches: int
    ) -> None:
        self._runner, self._which, self._launches = runner, which, launches
        self._failed = [i for i in which if (problem, i) in self.wrong]
        self._warm_up = clock_setup.WARM_UP[protocol.name]

    def begin(self) -> Begun:
        failure = Failure(Status.WRONG_RESULT, "row 3 of the output is wrong")
        launches = {i: self._launches for i in self._which if i not in self._failed}
        return Begun(launches, dict.fromkeys(self._failed, failure))

    def submit(self, order: Sequence[int]) -> None:
        self._out: list[int] = []
        for _ in range(self._warm_up):
            self._runner.run("_ZN7cutlass6KernelE", 7)
        for template in order:
            self._runner.run("_ZN9tilearena10spoil_rowsEPiii", 100)
            first = self._runner.now_ns
            for repeat in range(self._launches):
                self._runner.now_ns += GAP_NS if repeat else 0
                self._runner.run("_ZN7cutlass6KernelE", LAUNCH_NS * (1 + template))
            self._out.append(self._runner.now_ns - first + EMPTY_NS)

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        return self._out, {}


class FormulaRecorder:
    """In place of CUPTI: what the runners launched meanwhile."""

    version, runners = 130000, []

    def __enter__(self) -> "FormulaRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def recording(self) -> Iterator[list[Any]]:
        seen: list[Any] = []
        before = [len(runner.kernels) for runner in self.runners]
        yield seen
        for runner, count in zip(self.runners, before, strict=True):
            seen += runner.kernels[count:]


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> list[FormulaRunner]:
    """Opens formula runners instead of a GPU; the list has those that were opened."""
    opened: list[FormulaRunner] = []

    def _open(device: Device, space: Any, dtype: str, bit_op: Any, problems: Any, *, seed: int) -> FormulaRunner:
        opened.append(FormulaRunner(problems))
        return opened[-1]

    monkeypatch.setattr(live, "pick_device", lambda: DEVICE)
    monkeypatch.setattr(live, "open_runner", _open)
    monkeypatch.setattr(clock_setup, "WARM_UP_S", 0.0)
    monkeypatch.setattr(FormulaRecorder, "runners", opened)
    monkeypatch.setattr(clock_cupti, "Recorder", FormulaRecorder)
    return opened
