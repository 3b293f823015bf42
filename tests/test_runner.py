"""The GPU runner around a kernel library: what it asks of the library and how it reads the answers."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import standin

from tilearena import abi
from tilearena.build import BuildFailure, Library
from tilearena.dataset import Candidate
from tilearena.errors import DeviceFailedError, MeasureError, NoGpuError, OverloadedError
from tilearena.gpu_runner import GpuRunner
from tilearena.race import measure_problem
from tilearena.records import Problem, Protocol, Status
from tilearena.space import memory_needed
from tilearena.spec import load_space

COLD = Protocol(name="cold", rounds=3, reference_rounds=2, seed=5)
HOT = Protocol(name="hot", rounds=3, reference_rounds=2, seed=5)
PROBLEM = Problem(dtype="s8", m=77, n=104, k=208)
TEMPLATES = load_space("paper9").templates("s8")


class FakeLibrary:
    """Stands for the shared object: notes jobs and turns; a sample is 1000 ns x (entry + 4), 1 ns more each turn."""

    def __init__(self, ids, codes=(), outcomes=None, after=None):
        self.ids, self.codes, self.outcomes, self.after = ids, list(codes), outcomes or {}, after or {}
        self.gpus, self.jobs, self.turns, self.context, self.closed = 1, [], [], 7, []
        self.slots, self.submitted, self.begin_code = {}, {}, 0

    def ta_gpus(self):
        return self.gpus

    def ta_error(self):
        return b"no GPU: no NVIDIA driver is installed"

    def ta_count(self):
        return len(self.ids)

    def ta_id(self, i):
        return self.ids[i].encode()

    def ta_open(self, options):
        raw = options._obj
        self.opened = {name: getattr(raw, name) for name, _ in raw._fields_}
        return self.context

    def ta_close(self, context):
        self.closed.append(context)

    def ta_cublaslt_version(self, context):
        return 130100 if self.opened["cublaslt"] else 0

    def ta_empty_intervals(self, context, launches, count, out):
        for i in range(count):
            out[i] = 1280 + 2048 * launches + 32 * (i % 3)
        return 0

    def ta_prove(self, context, slot, job_pointer):
        job = job_pointer._obj
        names = ("m", "n", "k", "cold", "held", "bits", "seed", "xor_popc", "launches")
        described = {"entries": job.entry[: job.candidates], **{name: getattr(job, name) for name in names}}
        self.externals = job.externals
        self.jobs.append(described)
        self.slots[slot] = described
        return 0

    def ta_begin(self, context, slot, proof):
        self._report(slot, proof._obj, self.outcomes, 1 if self.slots[slot]["cold"] else 4)
        return self.begin_code

    def ta_submit(self, context, slot, count, turns):
        self.submitted[slot] = turns[:count]
        self.turns.append(turns[:count])
        return 0

    def ta_collect(self, context, slot, elapsed_ns, proof):
        for t, turn in enumerate(self.submitted[slot]):
            elapsed_ns[t] = 1000 * (self.slots[slot]["entries"][turn] + 4) + t
        self._report(slot, proof._obj, self.after, 1)
        return self.codes.pop(0) if self.codes else 0

    def _report(self, slot, proof, outcomes, launches):
        for p, entry in enumerate(self.slots[slot]["entries"]):
            proof.launches[p] = launches
            proof.outcome[p], proof.detail[p] = outcomes.get(entry, (0, 0))


@pytest.fixture
def open_runner(monkeypatch, tmp_path):
    """Opens a runner on a FakeLibrary; the entries of the library are the templates in reverse."""

    def _open(library=None, failures=(), problems=(PROBLEM,), device=standin.DEVICE, **options):
        library = library or FakeLibrary([t.id for t in reversed(TEMPLATES)])
        monkeypatch.setattr(abi, "load_library", lambda path: library)
        described = Library(name="x", arch=90, file="x.so", sources="abc", versions={"nvcc": "1"}, failures=failures)
        return GpuRunner(tmp_path, described, TEMPLATES, 1, device, problems, seed=3, **options), library

    return _open


def entry_of(candidate):
    return len(TEMPLATES) - 1 - candidate


def test_candidates_are_the_templates_and_the_default_again_as_control(open_runner):
    runner, _ = open_runner()
    assert [c.id for c in runner.candidates[:9]] == [t.id for t in TEMPLATES]
    assert runner.candidates[9:] == (
        Candidate(id=f"{TEMPLATES[1].id}#control", origin="control", template=TEMPLATES[1]),
    )
    assert (runner.default, runner.versions) == (1, {"nvcc": "1", "kernels": "abc"})


def test_memory_is_set_aside_for_the_largest_operands_and_output(open_runner):
    problems = [Problem(dtype="s8", m=1, n=8, k=1024), Problem(dtype="s8", m=100, n=80, k=16)]
    _, library = open_runner(problems=problems, ordinal=2)
    assert library.opened == {
        "ordinal": 2,
        "sm_count": 0,
        "operand_bytes": (1 + 8) * 1024,
        "output_bytes": 4 * 100 * 80,
        "l2_multiple": 3.0,
        "seed": 3,
        "cublaslt": None,
    }


def test_partition_is_opened_with_its_number_of_sms(open_runner):
    part = standin.DEVICE.model_copy(update={"sm_count": 72, "sm_total": 132})
    assert open_runner(device=part)[1].opened["sm_count"] == 72


def test_context_is_given_back(open_runner):
    runner, library = open_runner()
    with runner:
        assert library.closed == []
    assert library.closed == [7]


def test_clock_has_both_intervals_and_the_step_of_the_events(open_runner):
    clock = open_runner()[0].clock()
    assert (clock.empty_interval_ns, clock.empty_launch_ns, clock.resolution_ns) == (1312, 3360, 32)


def test_rows_are_matched_to_candidates_through_the_ids_of_the_library(open_runner):
    runner, library = open_runner()
    trial = runner.prove(PROBLEM, COLD, [2, 0, 9])
    begun = trial.begin()
    assert library.jobs[0]["entries"] == [entry_of(2), entry_of(0), entry_of(1)]
    assert (begun.launches, begun.failures) == ({2: 1, 0: 1, 9: 1}, {})
    elapsed_ns, failures = trial.sample([9, 2, 9, 0])
    assert library.turns == [[2, 0, 2, 1]]
    assert elapsed_ns == [1000 * (entry_of(c) + 4) + t for t, c in enumerate([1, 2, 1, 0])]
    assert failures == {}


def test_job_says_problem_and_protocol(open_runner):
    runner, library = open_runner()
    cold, hot = (runner.prove(PROBLEM, protocol, [0]).begin() for protocol in (COLD, HOT))
    assert (cold.launches, hot.launches) == ({0: 1}, {0: 4})
    for job, is_cold in zip(library.jobs, (1, 0), strict=True):
        shape = (job["m"], job["n"], job["k"], job["bits"], job["xor_popc"])
        assert (*shape, job["cold"], job["held"], job["launches"]) == (77, 104, 208, 8, 0, is_cold, 1, 0)
    assert library.jobs[0]["seed"] == library.jobs[1]["seed"]
    runner.prove(PROBLEM, COLD.model_copy(update={"seed": 6}), [0], launches=100, held=False)
    assert library.jobs[2]["seed"] != library.jobs[0]["seed"]
    assert (library.jobs[2]["held"], library.jobs[2]["launches"]) == (0, 100)


def test_template_that_was_not_built_is_a_failed_row_and_the_rest_keep_their_turns(open_runner):
    runner, library = open_runner(failures=[BuildFailure(id=TEMPLATES[1].id, reason="warp does not divide")])
    rows = measure_problem(runner, PROBLEM, COLD, [0, 1, 2])
    assert [row.status for row in rows] == [Status.OK, Status.BUILD_FAILED, Status.OK]
    assert rows[1].reason == "warp does not divide"
    assert library.jobs[0]["entries"] == [entry_of(0), entry_of(2)]
    assert sorted(library.turns[0]) == [0, 0, 1, 1]


def test_template_that_the_library_lacks_is_a_failed_row(open_runner):
    runner, _ = open_runner(FakeLibrary([TEMPLATES[0].id]))
    failures = runner.prove(PROBLEM, COLD, [0, 3]).begin().failures
    assert {i: f.status for i, f in failures.items()} == {3: Status.BUILD_FAILED}
    assert failures[3].reason == "the kernel library does not hold this template"


def test_template_that_the_device_cannot_run_is_infeasible_and_not_launched(open_runner):
    small = standin.DEVICE.model_copy(update={"smem_per_block_bytes": 1 << 16})
    runner, library = open_runner(device=small)
    failures = runner.prove(PROBLEM, COLD, range(10)).begin().failures
    infeasible = [i for i in range(9) if TEMPLATES[i].smem_bytes > 1 << 16]
    assert infeasible == [1, 2]
    assert {f.status for f in failures.values()} == {Status.INFEASIBLE}
    assert sorted(failures) == [*infeasible, 9]
    assert "needs 73728 bytes of shared memory, a block has 65536" in failures[1].reason
    assert len(library.jobs[0]["entries"]) == 7


def test_problem_that_does_not_fit_is_infeasible_for_all_and_nothing_runs(open_runner):
    tiny = standin.DEVICE.model_copy(update={"memory_bytes": 1 << 20})
    runner, library = open_runner(device=tiny, cublaslt=Path("libcublasLt.so"))
    rows = measure_problem(runner, PROBLEM, COLD, range(11))
    assert {row.status for row in rows} == {Status.INFEASIBLE}
    assert all("bytes of device memory" in row.reason for row in rows)
    assert library.jobs == library.turns == []


def test_problems_that_fit_one_by_one_but_not_together_lose_the_largest(open_runner):
    """One has large operands and the other a large output; the rings would need both."""
    wide = Problem(dtype="s8", m=1 << 14, n=1 << 14, k=64)
    deep = Problem(dtype="s8", m=1 << 10, n=1 << 10, k=1 << 19)
    memory = max(memory_needed(wide), memory_needed(deep))
    device = standin.DEVICE.model_copy(update={"memory_bytes": memory})
    runner, library = open_runner(problems=[wide, deep, PROBLEM], device=device)
    largest, other = sorted([wide, deep], key=memory_needed, reverse=True)
    assert (library.opened["operand_bytes"], library.opened["output_bytes"]) == (
        max(other.operand_bytes, PROBLEM.operand_bytes),
        max(other.output_bytes, PROBLEM.output_bytes),
    )
    assert runner.prove(other, COLD, [0]).begin().failures == {}
    assert runner.prove(largest, COLD, [0]).begin().failures[0].status is Status.INFEASIBLE


OUTCOMES = [
    (1, Status.INFEASIBLE, "the kernel cannot implement this problem"),
    (2, Status.LAUNCH_FAILED, "the launch failed (CUDA error 12)"),
    (3, Status.WRONG_RESULT, "row 12 of the output is wrong"),
    (4, Status.WRONG_RESULT, "the kernel wrote outside its output (word 12 of a guard band)"),
    (5, Status.WRONG_RESULT, "element 12 of the output differs from the direct reference"),
    (6, Status.WRONG_RESULT, "row 12 of the output of the last timed launch is wrong"),
]


@pytest.mark.parametrize(("outcome", "status", "reason"), OUTCOMES)
@pytest.mark.parametrize("when", ["outcomes", "after"])
def test_outcome_becomes_a_status_with_a_reason_and_no_time(open_runner, when, outcome, status, reason):
    library = FakeLibrary([t.id for t in TEMPLATES], **{when: {4: (outcome, 12)}})
    runner, _ = open_runner(library)
    good, bad = measure_problem(runner, PROBLEM, COLD, [3, 4])
    assert good.status is Status.OK
    assert (bad.status, bad.reason, bad.elapsed_ns) == (status, reason, ())


def test_hold_that_expired_is_repeated_three_times_at_most(open_runner):
    ids = [t.id for t in TEMPLATES]
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 0]))
    assert runner.prove(PROBLEM, COLD, [0]).sample([0]) == ([4000], {})
    assert (library.turns, runner.retakes) == ([[0]] * 3, 2)
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 1]))
    with pytest.raises(OverloadedError, match="3 times at 77x104x208 s8; is the machine overloaded"):
        runner.prove(PROBLEM, COLD, [0]).sample([0])


def test_proof_whose_holds_expired_every_time_says_nothing(open_runner):
    runner, library = open_runner()
    library.begin_code = 1
    with pytest.raises(OverloadedError, match="3 times at 77x104x208 s8; is the machine overloaded"):
        runner.prove(PROBLEM, HOT, [0]).begin()


@pytest.mark.parametrize("codes", [[-1], [0, -1]], ids=["in the screen", "in the final"])
def test_device_that_failed_stops_the_measuring(open_runner, codes):
    runner, _ = open_runner(FakeLibrary([t.id for t in TEMPLATES], codes=codes))
    with pytest.raises(DeviceFailedError, match="the GPU failed at 77x104x208 s8"):
        measure_problem(runner, PROBLEM, COLD, [0])


def test_machine_without_a_gpu_and_a_gpu_that_does_not_open_are_named(open_runner):
    library = FakeLibrary([])
    library.gpus = -1
    with pytest.raises(NoGpuError, match=r"^no GPU: no NVIDIA driver is installed$"):
        open_runner(library)
    library.gpus, library.context = 1, None
    with pytest.raises(MeasureError, match="GPU 0 cannot be opened for these problems: "):
        open_runner(library)


def test_vendors_are_candidates_without_a_template_after_the_control(open_runner):
    calls = []
    externals = [("one", lambda *arguments: calls.append(arguments) or 0), ("two", lambda *arguments: 1)]
    runner, library = open_runner(cublaslt=Path("/lib/libcublasLt.so"), externals=externals)
    found = [(c.id, c.origin, c.template) for c in runner.candidates[10:]]
    assert found == [("cublaslt", "vendor", None), ("one", "vendor", None), ("two", "vendor", None)]
    assert library.opened["cublaslt"] == b"/lib/libcublasLt.so"
    assert runner.versions["cublaslt"] == "130100"
    runner.prove(PROBLEM, COLD, [0, 10, 11, 12])
    assert library.jobs[0]["entries"] == [entry_of(0), -1, -2, -3]
    assert [library.externals[i](1, 2, 3, 4, 5, 6, 7, 8) for i in range(2)] == [0, 1]
    assert calls == [(1, 2, 3, 4, 5, 6, 7, 8)]


def test_exception_of_an_external_is_a_failed_launch_with_its_message(open_runner):
    def broken(*arguments):
        raise RuntimeError("cuBLAS is missing")

    library = FakeLibrary([t.id for t in reversed(TEMPLATES)], outcomes={-1: (2, 13), -2: (2, 0)})
    runner, _ = open_runner(library, cublaslt=Path("x"), externals=[("vendor", broken)])
    runner.prove(PROBLEM, COLD, [11])
    assert library.externals[0](ctypes.c_void_p(1), None, None, 1, 2, 3, 4, None) == 2
    direct, vendor = measure_problem(runner, PROBLEM, COLD, [10, 11])
    assert (direct.status, direct.reason) == (Status.LAUNCH_FAILED, "cuBLASLt's call failed (status 13)")
    assert (vendor.status, vendor.reason) == (Status.LAUNCH_FAILED, "the vendor's call failed: cuBLAS is missing")


def test_two_trials_have_slots_of_their_own_and_the_third_has_the_first_ones(open_runner):
    other = PROBLEM.model_copy(update={"k": 224})
    runner, library = open_runner(problems=[PROBLEM, other])
    first, second = runner.prove(PROBLEM, COLD, [0, 1]), runner.prove(other, HOT, [2])
    assert [first.begin().launches, second.begin().launches] == [{0: 1, 1: 1}, {2: 4}]
    first.submit([0, 1, 0])
    second.submit([2, 2])
    times = [1000 * (entry_of(c) + 4) for c in (0, 1, 2)]
    assert first.collect() == ([times[0], times[1] + 1, times[0] + 2], {})
    assert second.collect() == ([times[2], times[2] + 1], {})
    runner.prove(PROBLEM, COLD, [3])
    with pytest.raises(AssertionError, match="another trial has the slot by now"):
        first.submit([0])
    assert [job["entries"] for job in library.slots.values()].count([entry_of(3)]) == 1
    assert [entry_of(2)] in [job["entries"] for job in library.slots.values()]


def test_samples_are_taken_again_in_their_own_slot(open_runner):
    runner, library = open_runner(FakeLibrary([t.id for t in reversed(TEMPLATES)], codes=[1, 0, 0]))
    first, second = (runner.prove(PROBLEM, COLD, [c]) for c in (0, 1))
    first.submit([0])
    second.submit([1, 1])
    assert first.collect() == ([1000 * (entry_of(0) + 4)], {})
    assert (library.turns, runner.retakes) == ([[0], [0, 0], [0]], 1)
    assert second.collect()[0][0] == 1000 * (entry_of(1) + 4)


def test_seed_of_the_weights_is_of_the_problem_and_the_protocol(open_runner):
    other = PROBLEM.model_copy(update={"k": 224})
    runner, library = open_runner(problems=[PROBLEM, other])
    for problem in (PROBLEM, other, PROBLEM):
        runner.prove(problem, COLD, [0])
    seeds = [job["seed"] for job in library.jobs]
    assert seeds[0] == seeds[2] != seeds[1]


def test_structures_have_the_layout_of_the_header():
    # offsets as a C compiler for 64 bits lays out kernels/abi.h
    assert (abi.Options.operand_bytes.offset, abi.Options.cublaslt.offset, ctypes.sizeof(abi.Options)) == (8, 40, 48)
    assert (abi.Job.entry.offset, abi.Job.launches.offset, abi.Job.reference_macs.offset) == (32, 52, 56)
    assert ctypes.sizeof(abi.Job) == 80


def test_file_that_is_no_kernel_library_is_refused(tmp_path):
    for name, data in (("text.so", b"not ELF"), ("empty.so", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(MeasureError, match=f"{name}: not a kernel library .*; build it again"):
            abi.load_library(tmp_path / name)


def test_proof_holds_its_arrays():
    proof = abi.Proof.of(3)
    raw = proof.reference._obj
    raw.outcome[2], raw.detail[1], raw.launches[0] = 6, 1 << 40, 20
    assert (proof.outcome.tolist(), proof.detail.tolist(), proof.launches.tolist()) == (
        [0, 0, 6],
        [0, 1 << 40, 0],
        [20, 0, 0],
    )
    assert proof.outcome.dtype == np.int32
