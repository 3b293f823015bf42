"""The GPU runner around a kernel library: what it opens, what it asks of the library, and what it does not ask."""

from pathlib import Path

import pytest
import standin
from fake_library import COLD, HOT, PROBLEM, TEMPLATES, FakeLibrary, entry_of

from tilearena.build import BuildFailure
from tilearena.dataset import Candidate
from tilearena.errors import MeasureError, NoGpuError
from tilearena.feasible import memory_needed
from tilearena.race import measure_problem
from tilearena.records import Problem, Status


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


def test_seed_of_the_weights_is_of_the_problem_and_the_protocol(open_runner):
    other = PROBLEM.model_copy(update={"k": 224})
    runner, library = open_runner(problems=[PROBLEM, other])
    for problem in (PROBLEM, other, PROBLEM):
        runner.prove(problem, COLD, [0])
    seeds = [job["seed"] for job in library.jobs]
    assert seeds[0] == seeds[2] != seeds[1]
