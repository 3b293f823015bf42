"""The GPU runner around a kernel library: what it asks of the library and how it reads the answers."""

import ctypes

import numpy as np
import pytest

from tilearena import runner as runners
from tilearena.build import BuildFailure, Library
from tilearena.dataset import Candidate
from tilearena.errors import DeviceFailedError, MeasureError, NoGpuError
from tilearena.measure import measure_problem
from tilearena.records import Problem, Protocol, Status
from tilearena.runner import GpuRunner, load_library
from tilearena.spec import load_space

COLD = Protocol(name="cold", rounds=3, seed=5)
HOT = Protocol(name="hot", rounds=3, seed=5)
PROBLEM = Problem(dtype="s8", m=77, n=104, k=208)
TEMPLATES = load_space("paper9").templates("s8")


class FakeLibrary:
    """Stands for the shared object: notes jobs; a sample is 1000 ns x (entry + 2), and 1 ns more each round."""

    def __init__(self, ids, codes=(), outcomes=None):
        self.ids, self.codes, self.outcomes = ids, list(codes), outcomes or {}
        self.gpus, self.jobs, self.context, self.closed = 1, [], 7, []

    def ta_gpus(self):
        return self.gpus

    def ta_error(self):
        return b"no GPU: no NVIDIA driver is installed"

    def ta_count(self):
        return len(self.ids)

    def ta_id(self, i):
        return self.ids[i].encode()

    def ta_open(self, *arguments):
        self.opened = arguments
        return self.context

    def ta_close(self, context):
        self.closed.append(context)

    def ta_measure(self, context, job_pointer, results_pointer):
        job, results = job_pointer._obj, results_pointer._obj
        n, rounds = job.candidates, job.rounds
        entries, order = job.entry[:n], np.reshape(job.order[: n * rounds], (rounds, n))
        self.jobs.append(
            {
                "entries": entries,
                "order": order,
                **{k: getattr(job, k) for k in ("m", "n", "k", "cold", "bits", "seed", "xor_popc")},
            }
        )
        for p, entry in enumerate(entries):
            results.outcome[p], results.detail[p] = self.outcomes.get(entry, (0, 0))
            results.launches[p] = 1 if job.cold else 4
            for i in range(rounds):
                results.elapsed_ns[p * rounds + i] = 1000 * (entry + 2) + i
        return self.codes.pop(0) if self.codes else 0


@pytest.fixture
def open_runner(monkeypatch, recorded, tmp_path):
    """Opens a runner on a FakeLibrary; the entries of the library are the templates in reverse."""

    def _open(library=None, failures=(), problems=(PROBLEM,), **options):
        library = library or FakeLibrary([t.id for t in reversed(TEMPLATES)])
        monkeypatch.setattr(runners, "load_library", lambda path: library)
        described = Library(name="x", arch=90, file="x.so", sources="", versions={"nvcc": "1"}, failures=failures)
        device = recorded().header.device
        return GpuRunner(tmp_path, described, TEMPLATES, 1, device, problems, seed=3, **options), library

    return _open


def entry_of(candidate):
    return len(TEMPLATES) - 1 - candidate


def test_candidates_are_the_templates_and_the_default_again_as_control(open_runner):
    runner, _ = open_runner()
    assert [c.id for c in runner.candidates[:9]] == [t.id for t in TEMPLATES]
    assert runner.candidates[9] == Candidate(id=f"{TEMPLATES[1].id}#control", origin="control", template=TEMPLATES[1])
    assert runner.versions == {"nvcc": "1"}


def test_memory_is_set_aside_for_the_largest_operands_and_output(open_runner):
    problems = [Problem(dtype="s8", m=1, n=8, k=1024), Problem(dtype="s8", m=100, n=80, k=16)]
    _, library = open_runner(problems=problems)
    assert library.opened == (0, (1 + 8) * 1024, 4 * 100 * 80, 3.0, 3)


def test_context_is_given_back(open_runner):
    runner, library = open_runner()
    with runner:
        assert library.closed == []
    assert library.closed == [7]


def test_rows_are_matched_to_candidates_through_the_ids_of_the_library(open_runner):
    runner, library = open_runner()
    rows = measure_problem(runner, PROBLEM, COLD, [2, 0, 9])
    assert library.jobs[0]["entries"] == [entry_of(2), entry_of(0), entry_of(1)]
    assert [(row.candidate, row.status) for row in rows] == [(2, Status.OK), (0, Status.OK), (9, Status.OK)]
    assert rows[0].elapsed_ns == tuple(1000 * (entry_of(2) + 2) + i for i in range(3))
    assert rows[2].elapsed_ns == tuple(1000 * (entry_of(1) + 2) + i for i in range(3))


def test_job_says_problem_and_protocol(open_runner):
    runner, library = open_runner()
    cold, hot = (measure_problem(runner, PROBLEM, protocol, [0])[0] for protocol in (COLD, HOT))
    assert (cold.launches, hot.launches) == (1, 4)
    for job, is_cold in zip(library.jobs, (1, 0), strict=True):
        assert (job["m"], job["n"], job["k"], job["bits"], job["xor_popc"], job["cold"]) == (
            77,
            104,
            208,
            8,
            0,
            is_cold,
        )
    assert library.jobs[0]["seed"] == library.jobs[1]["seed"]
    measure_problem(runner, PROBLEM, COLD.model_copy(update={"seed": 6}), [0])
    assert library.jobs[2]["seed"] != library.jobs[0]["seed"]


def test_template_that_was_not_built_is_a_failed_row_and_the_rest_keep_their_turns(open_runner):
    runner, library = open_runner(failures=[BuildFailure(id=TEMPLATES[1].id, reason="warp does not divide")])
    order = np.array([[2, 1, 0], [1, 0, 2], [0, 2, 1]])
    rows = runner.measure(PROBLEM, COLD, [0, 1, 2], order)
    assert [row.status for row in rows] == [Status.OK, Status.BUILD_FAILED, Status.OK]
    assert rows[1].reason == "warp does not divide"
    assert library.jobs[0]["entries"] == [entry_of(0), entry_of(2)]
    assert library.jobs[0]["order"].tolist() == [[1, 0], [0, 1], [0, 1]]


def test_template_that_the_library_lacks_is_a_failed_row(open_runner):
    runner, _ = open_runner(FakeLibrary([TEMPLATES[0].id]))
    rows = measure_problem(runner, PROBLEM, COLD, [0, 3])
    assert [row.status for row in rows] == [Status.OK, Status.BUILD_FAILED]
    assert rows[1].reason == "the kernel library does not hold this template"


def test_template_that_the_device_cannot_run_is_infeasible_and_not_launched(open_runner):
    runner, library = open_runner()
    runner.device = runner.device.model_copy(update={"smem_per_block_bytes": 1 << 16})
    rows = measure_problem(runner, PROBLEM, COLD, range(10))
    infeasible = [i for i in range(9) if TEMPLATES[i].smem_bytes > 1 << 16]
    assert infeasible == [1, 2]
    assert [row.candidate for row in rows if row.status is Status.INFEASIBLE] == [*infeasible, 9]
    assert "needs 73728 bytes of shared memory, a block has 65536" in rows[1].reason
    assert len(library.jobs[0]["entries"]) == 7


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (1, Status.INFEASIBLE, "the kernel cannot implement this problem"),
        (2, Status.LAUNCH_FAILED, "the launch failed (CUDA error 12)"),
        (3, Status.WRONG_RESULT, "row 12 of the output is wrong"),
        (4, Status.WRONG_RESULT, "the kernel wrote outside its output (guard word 12)"),
        (5, Status.WRONG_RESULT, "element 12 of the output differs from the direct reference"),
        (6, Status.WRONG_RESULT, "row 12 of the output of the last timed launch is wrong"),
    ],
)
def test_outcome_becomes_a_status_with_a_reason_and_no_time(open_runner, outcome, status, reason):
    library = FakeLibrary([t.id for t in TEMPLATES], outcomes={4: (outcome, 12)})
    runner, _ = open_runner(library)
    good, bad = measure_problem(runner, PROBLEM, COLD, [3, 4])
    assert good.status is Status.OK
    assert (bad.status, bad.reason, bad.elapsed_ns) == (status, reason, ())


def test_hold_that_expired_is_repeated_three_times_at_most(open_runner):
    ids = [t.id for t in TEMPLATES]
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 0]))
    assert measure_problem(runner, PROBLEM, COLD, [0])[0].status is Status.OK
    assert len(library.jobs) == 3
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 1]))
    with pytest.raises(MeasureError, match="is the machine overloaded"):
        measure_problem(runner, PROBLEM, COLD, [0])


def test_device_that_failed_stops_the_measuring(open_runner):
    runner, library = open_runner(FakeLibrary([t.id for t in TEMPLATES], codes=[-1]))
    with pytest.raises(DeviceFailedError, match="the GPU failed at 77x104x208 s8"):
        measure_problem(runner, PROBLEM, COLD, [0])
    assert len(library.jobs) == 1


def test_machine_without_a_gpu_and_a_gpu_that_does_not_open_are_named(open_runner):
    library = FakeLibrary([])
    library.gpus = -1
    with pytest.raises(NoGpuError, match=r"^no GPU: no NVIDIA driver is installed$"):
        open_runner(library)
    library.gpus, library.context = 1, None
    with pytest.raises(MeasureError, match="GPU 0 cannot be opened for these problems: "):
        open_runner(library)


def test_vendor_is_a_candidate_without_a_template_and_its_exception_is_a_failed_launch(open_runner):
    def broken(*arguments):
        raise RuntimeError("cuBLAS is missing")

    runner, library = open_runner(vendor=("vendor", broken))
    assert (runner.candidates[10].origin, runner.candidates[10].template) == ("vendor", None)
    measure_problem(runner, PROBLEM, COLD, [0, 10])
    assert library.jobs[0]["entries"] == [entry_of(0), -1]
    assert runner._external(ctypes.c_void_p(1), None, None, 1, 2, 3, None) == 2
    library.outcomes = {-1: (2, 0)}
    row = measure_problem(runner, PROBLEM, COLD, [0, 10])[1]
    assert (row.status, row.reason) == (Status.LAUNCH_FAILED, "the vendor's call failed: cuBLAS is missing")


def test_file_that_is_no_kernel_library_is_refused(tmp_path):
    for name, data in (("text.so", b"not ELF"), ("empty.so", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(MeasureError, match=f"{name}: not a kernel library .*; build it again"):
            load_library(tmp_path / name)
