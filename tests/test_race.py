"""Who gets how many samples of a race, in which order, and which of them make up a time."""

import numpy as np
import pytest

from tilearena import dataset
from tilearena.dataset import Candidate
from tilearena.errors import DeviceFailedError
from tilearena.race import measure_problem, measure_problems, turns
from tilearena.records import Problem, Protocol, Status
from tilearena.rows import median_time_ns
from tilearena.runner import Begun, Failure, Trial

PROBLEM = Problem(dtype="s8", m=7, n=64, k=128)
COLD = Protocol(name="cold", rounds=16, seed=5)
#: Four templates, the control of the second, and a vendor's kernel.
ORIGINS = ("template",) * 4 + ("control", "vendor")
DEFAULT, CONTROL, VENDOR = 1, 4, 5


class Scripted:
    """Gives each candidate its times one after the other, the last for ever; notes in which orders it was asked."""

    device, versions, default = None, {}, DEFAULT
    candidates = tuple(Candidate(id=str(i), origin=origin) for i, origin in enumerate(ORIGINS))

    def __init__(self, times, *, begin_failures=(), sample_failures=()):
        self.times = {i: list(t) if isinstance(t, list) else [t] for i, t in enumerate(times)}
        self.begin_failures = dict(begin_failures)
        self.sample_failures = list(sample_failures)
        self.orders, self.proved, self.events = [], [], []

    def prove(self, problem, protocol, which):
        self.proved.append((problem, protocol, tuple(which)))
        return ScriptedTrial(self, problem.m, which)


class ScriptedTrial(Trial):
    """Of a `Scripted` runner; what is asked of it is in ``events`` with the problem's M."""

    def __init__(self, runner, m, which):
        self._runner, self._m, self._which = runner, m, which
        self._note("prove")

    def _note(self, event):
        self._runner.events.append((event, self._m))

    def begin(self):
        self._note("begin")
        failures = {i: f for i, f in self._runner.begin_failures.items() if i in self._which}
        return Begun({i: 10 + i for i in self._which if i not in failures}, failures)

    def submit(self, order):
        self._note("submit")
        self._order = list(order)
        self._runner.orders.append(self._order)

    def collect(self):
        self._note("collect")
        times, failures = self._runner.times, self._runner.sample_failures
        elapsed_ns = [times[i].pop(0) if len(times[i]) > 1 else times[i][0] for i in self._order]
        return elapsed_ns, failures.pop(0) if failures else {}


def counts(rows):
    return [len(row.elapsed_ns) for row in rows]


def wrong(reason="row 0 of the output is wrong"):
    return Failure(Status.WRONG_RESULT, reason)


def race(times, which=range(6), protocol=COLD, **failures):
    runner = Scripted(times, **failures)
    return runner, measure_problem(runner, PROBLEM, protocol, which)


def test_contenders_get_fresh_rounds_the_references_a_few_and_the_rest_the_screen_alone():
    # 100 and 105 contend; 200 is the default; 300 is out; control and vendor are never screened
    _, rows = race([100, 200, 105, 300, 200, 50])
    assert counts(rows) == [2 + 16, 2 + 4, 2 + 16, 2, 4, 4]
    assert all(row.status is Status.OK for row in rows)
    assert [row.launches for row in rows] == [10, 11, 12, 13, 14, 15]


def test_default_that_contends_gets_all_rounds_and_its_control_the_few():
    _, rows = race([100, 104, 300, 300, 104, 500])
    assert counts(rows) == [18, 18, 2, 2, 4, 4]


def test_contender_without_a_rival_has_nobody_to_be_compared_with():
    _, rows = race([100, 200, 300, 300, 200, 500])
    assert counts(rows) == [2 + 4, 2 + 4, 2, 2, 4, 4]
    _, rows = race([300, 100, 300, 300, 100, 500])
    assert counts(rows) == [2, 2 + 4, 2, 2, 4, 4]


@pytest.mark.parametrize(("time_ns", "contends"), [(109, True), (110, True), (111, False)])
def test_tie_at_the_margin_contends(time_ns, contends):
    _, rows = race([100, 500, time_ns, 500, 500, 500], protocol=COLD.model_copy(update={"contender_margin": 0.1}))
    assert counts(rows)[2] == (18 if contends else 2)


def test_contender_is_judged_by_its_smallest_screen_sample_against_the_smallest_median():
    # medians are 100, 155: the second is far off but for its luckier sample of 110
    _, rows = race([[90, 110, 100], [500], [110, 200, 150], [112, 112, 112], 500, 500])
    assert counts(rows)[0] == 18
    assert counts(rows)[2] == 18
    assert counts(rows)[3] == 2


@pytest.mark.parametrize(
    ("most", "fresh"), [(None, [16, 16, 16, 16]), (4, [16, 16, 16, 16]), (3, [16, 0, 16, 16]), (2, [16, 0, 0, 16])]
)
def test_of_many_contenders_those_with_the_smallest_screen_medians_go_on(most, fresh):
    # medians 100, 104, 103, 102, all within the margin; the default, 1, is among them, and gets its few in any case
    protocol = COLD.model_copy(update={"max_contenders": most})
    _, rows = race([100, 104, 103, 102, 104, 500], protocol=protocol)
    expected = [2 + (4 if i == DEFAULT and not rounds else rounds) for i, rounds in enumerate(fresh)]
    assert counts(rows) == [*expected, 4, 4]


def test_of_equal_contenders_the_first_go_on():
    _, rows = race([500, 500, 100, 100, 500, 500], protocol=COLD.model_copy(update={"max_contenders": 1}))
    # the only one left has no rival
    assert counts(rows) == [2, 2 + 4, 2 + 4, 2, 4, 4]


def test_contender_that_was_left_out_comes_back_if_the_others_turn_out_slower():
    protocol = COLD.model_copy(update={"max_contenders": 1})
    _, rows = race([[100, 100, 120], 300, [112, 112, 115], 125, 300, 50], protocol=protocol)
    assert counts(rows)[2] == 2 + 16


def test_time_of_a_contender_is_the_median_of_its_fresh_samples_alone():
    runner, rows = race([[10, 10, *[100] * 16], [500], [10, 10, *[90] * 16], [800], 500, 40])
    table = dataset.rows_from(rows)
    screens = np.array([2, 2, 2, 2, 0, 0])
    times = median_time_ns(table, screens)
    assert times.tolist() == [100 / 10, 500 / 11, 90 / 12, 800 / 13, 500 / 14, 40 / 15]
    assert rows[0].elapsed_ns == (10, 10, *[100] * 16)
    assert len(runner.orders) == 2


def test_template_that_was_faster_in_the_screen_than_all_finals_gets_a_final_of_its_own():
    # 0 has no rival, but slows down from 100 to 120; 2 had 112 in the screen and has 115 in the end; 3 is never close
    runner, rows = race([[100, 100, 120], 300, [112, 112, 115], 125, 300, 50])
    assert counts(rows) == [2 + 4 + 16, 2 + 4 + 4, 2 + 16, 2, 8, 8]
    assert [len(order) for order in runner.orders] == [2 * 4, 4 * 4, 16 * 2 + 4 * 3]
    times = median_time_ns(dataset.rows_from(rows), np.array([2, 2, 2, 2, 0, 0]))
    assert (times[0], times[2]) == (120 / 10, 115 / 12)


def test_two_problems_are_under_way_so_that_the_gpu_never_waits_for_the_host():
    runner = Scripted([100, 200, 105, 300, 200, 50])
    problems = [PROBLEM.model_copy(update={"m": m}) for m in (1, 2, 3)]
    tasks = zip(problems, ((0, 1), (3, DEFAULT), (2,)), strict=True)
    measured = measure_problems(runner, COLD, tasks)
    assert [(row.m, row.candidate) for row in next(measured)] == [(1, 0), (1, 1)]
    first = [("prove", 1), ("begin", 1), ("submit", 1)]  # its screen
    ahead = [("prove", 2), ("collect", 1), ("submit", 1), ("begin", 2), ("submit", 2), ("collect", 1)]
    assert runner.events == [*first, *ahead]
    assert [(row.m, row.candidate) for row in next(measured)] == [(2, 3), (2, DEFAULT)]
    assert runner.events[len(first) + len(ahead) :] == [(event, m + 1) for event, m in ahead]
    assert [[row.m for row in rows] for rows in measured] == [[3]]
    assert runner.events[-3:] == [("collect", 3), ("submit", 3), ("collect", 3)]
    assert [which for _, _, which in runner.proved] == [(0, 1), (3, DEFAULT), (2,)]


def test_second_final_of_a_problem_follows_the_screen_of_the_next():
    runner = Scripted([[100, 100, 120], 300, [112, 112, 115], 125, 300, 50])
    tasks = [(PROBLEM.model_copy(update={"m": m}), range(6)) for m in (1, 2)]
    next(measure_problems(runner, COLD, tasks))
    assert runner.events[-5:] == [("begin", 2), ("submit", 2), ("collect", 1), ("submit", 1), ("collect", 1)]


def test_there_is_no_third_final():
    runner, _ = race([[100, 100, 120], 300, [112, 112, 140], 118, 300, 50])
    assert len(runner.orders) == 3


def test_without_a_screen_all_candidates_are_equals():
    protocol = COLD.model_copy(update={"screen_rounds": 0})
    runner, rows = race([100, 200, 300, 400, 200, 900], protocol=protocol)
    assert counts(rows) == [16] * 6
    (order,) = runner.orders
    # until the last four rounds and in them alike, each round has everyone once
    rounds = np.array(order).reshape(16, 6)
    assert (np.sort(rounds, axis=1) == np.arange(6)).all()


def test_one_candidate_alone_gets_its_rounds():
    once = COLD.model_copy(update={"screen_rounds": 0, "rounds": 1, "reference_rounds": 1})
    runner, rows = race([100] * 6, which=[3], protocol=once)
    assert counts(rows) == [1]
    assert runner.orders == [[3]]
    _, rows = race([100] * 6, which=[VENDOR])
    assert counts(rows) == [4]


def test_only_those_that_are_asked_for_take_part_and_rows_are_in_their_order():
    runner, rows = race([100, 104, 90, 95, 104, 50], which=[VENDOR, 3, DEFAULT, 0])
    assert [row.candidate for row in rows] == [VENDOR, 3, DEFAULT, 0]
    assert counts(rows) == [4, 18, 18, 18]
    assert {i for order in runner.orders for i in order} == {0, DEFAULT, 3, VENDOR}
    assert runner.proved == [(PROBLEM, COLD, (VENDOR, 3, DEFAULT, 0))]


def test_screen_and_each_round_of_the_final_are_permutations():
    runner, _ = race([100, 200, 105, 107, 200, 50])
    screen, final = runner.orders
    assert (np.sort(np.reshape(screen, (2, 4)), axis=1) == np.arange(4)).all()
    contended = np.reshape(final[: 12 * 3], (12, 3))
    assert (np.sort(contended, axis=1) == [0, 2, 3]).all()
    last = np.reshape(final[12 * 3 :], (4, 6))
    assert (np.sort(last, axis=1) == np.arange(6)).all()
    assert len({tuple(turn) for turn in contended.tolist()}) > 2
    assert len({tuple(turn) for turn in last.tolist()}) == 4


def test_order_depends_on_seed_and_shape_alone():
    def orders(problem=PROBLEM, **change):
        runner = Scripted([100, 200, 105, 107, 200, 50])
        measure_problem(runner, problem, COLD.model_copy(update=change), range(6))
        return runner.orders

    assert orders() == orders() == orders(name="hot")
    others = [orders(seed=6), *(orders(PROBLEM.model_copy(update=d)) for d in ({"m": 8}, {"n": 128}, {"k": 64}))]
    assert all(other != orders() for other in others)


def test_turns_put_every_candidate_first_sometimes():
    first = turns(np.random.default_rng(0), range(10), 400).reshape(400, 10)[:, 0]
    counted = np.bincount(first)
    assert counted.min() > 15  # 40 expected
    assert counted.max() < 75
    assert turns(np.random.default_rng(0), [4, 7], 0).tolist() == []


def test_candidate_that_fails_the_proof_is_not_timed():
    runner, rows = race([100, 200, 105, 300, 200, 50], begin_failures={0: wrong(), VENDOR: wrong("guard word 3")})
    assert {i for order in runner.orders for i in order} == {1, 2, 3, CONTROL}
    assert [(row.status, row.reason, row.elapsed_ns) for row in (rows[0], rows[VENDOR])] == [
        (Status.WRONG_RESULT, "row 0 of the output is wrong", ()),
        (Status.WRONG_RESULT, "guard word 3", ()),
    ]
    # with the fastest out, the next one has no rival
    assert counts(rows) == [0, 6, 6, 2, 4, 0]


def test_candidate_that_fails_in_the_screen_sets_no_limit_and_runs_no_final():
    runner, rows = race([10, 200, 105, 108, 200, 50], sample_failures=[{0: wrong()}])
    assert 0 not in runner.orders[1]
    assert (rows[0].status, rows[0].elapsed_ns, rows[0].launches) == (Status.WRONG_RESULT, (), 0)
    assert counts(rows) == [0, 6, 18, 18, 4, 4]


def test_candidate_that_fails_in_the_final_has_no_time_and_the_others_keep_theirs():
    _, rows = race([100, 200, 105, 300, 200, 50], sample_failures=[{}, {2: wrong(), CONTROL: wrong()}])
    assert counts(rows) == [18, 6, 0, 2, 0, 4]
    assert [row.reason for row in rows if row.reason] == ["row 0 of the output is wrong"] * 2


def test_problem_on_which_everything_fails_is_not_timed():
    runner, rows = race([100] * 6, begin_failures={i: wrong() for i in range(6)})
    assert runner.orders == []
    assert {row.status for row in rows} == {Status.WRONG_RESULT}


def test_templates_that_all_fail_leave_the_references_their_rounds():
    _, rows = race([100] * 6, begin_failures={i: wrong() for i in range(4)})
    assert counts(rows) == [0, 0, 0, 0, 4, 4]


def test_device_that_fails_ends_the_race(monkeypatch):
    def fail(trial):
        raise DeviceFailedError("an illegal address")

    monkeypatch.setattr(ScriptedTrial, "collect", fail)
    with pytest.raises(DeviceFailedError, match="an illegal address"):
        race([100] * 6)


def test_few_rounds_are_all_with_the_references():
    """s4 has three rounds, of which three are reference rounds."""
    few = COLD.model_copy(update={"rounds": 3, "reference_rounds": 3})
    runner, rows = race([100, 200, 105, 300, 200, 50], protocol=few)
    assert counts(rows) == [5, 5, 5, 2, 3, 3]
    assert len(runner.orders[1]) == 3 * 5
