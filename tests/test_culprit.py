"""Who is blamed for a trouble: pure rules on what was running."""

from tilearena.culprit import Case, Trouble
from tilearena.records import Measurement, Problem, Status
from tilearena.worker_link import Trying

PROBLEMS = tuple(Problem(dtype="s8", m=m, n=128, k=128) for m in (1, 2))
INSIDE, KILL = Trouble("an illegal address"), Trouble("the worker died (signal 9)", inside=False)


def _case(at=None):
    return Case(PROBLEMS, ((0, 1, 2), (0, 2)), at=at)


def _row(problem, candidate):
    shape = {"m": problem.m, "n": problem.n, "k": problem.k}
    return Measurement(**shape, candidate=candidate, status=Status.OK, elapsed_ns=(7,), launches=1)


def test_trouble_with_several_candidates_running_makes_the_problem_suspect_and_blames_none():
    case = _case(Trying(problem=1))
    assert case.blame(INSIDE) is None
    assert (case.suspect, dict(case.failed)) == (1, {})


def test_trouble_while_nothing_runs_blames_nothing():
    case = _case()
    assert case.blame(INSIDE) is None
    assert case.suspect is None


def _suspects(case, trouble, times):
    found = []
    for _ in range(times):
        case.at = Trying(problem=1, warm_up=True)
        assert case.blame(trouble) is None
        found.append(case.suspect)
    return found


def test_kills_during_the_warm_up_make_its_problem_suspect_when_they_come_again_and_again():
    case = _case()
    assert _suspects(case, KILL, 3) == [None, None, 1]
    case.acquit()
    assert _suspects(case, KILL, 3) == [None, None, 1]
    assert _suspects(_case(), INSIDE, 1) == [1]
    case = _case()
    assert _suspects(case, KILL, 3) == [None, None, 1]
    case.at = Trying(problem=1, candidate=2)
    case.blame(INSIDE)
    assert _suspects(case, KILL, 3) == [None, None, 1]


def test_problem_that_was_examined_goes_alone_and_the_others_up_to_it():
    problems = tuple(Problem(dtype="s8", m=m, n=128, k=128) for m in range(1, 7))
    case = Case(problems, ((0,),) * 6)
    assert [case.run_from(i) for i in range(6)] == [6] * 6
    case.suspect = 2
    case.acquit()
    case.failed[4][0] = "an illegal address"
    assert [case.run_from(i) for i in range(6)] == [2, 2, 3, 4, 5, 6]


def test_candidate_that_fails_alone_is_to_blame_at_once():
    case = _case(Trying(problem=1))
    case.blame(INSIDE)
    case.at = Trying(problem=1, candidate=2)
    assert case.blame(INSIDE) == 2
    assert case.suspect is None
    assert case.launched(1, ()) == (0,)
    assert case.launched(0, ()) == (0, 1, 2)


def test_candidate_that_a_kill_may_have_met_is_to_blame_only_when_it_happens_again():
    case = _case(Trying(problem=0))
    case.blame(KILL)
    case.at = Trying(problem=0, candidate=1)
    assert case.blame(KILL) is None
    assert case.suspect == 0
    case.at = Trying(problem=0, candidate=2)  # another one: that was no proof either
    assert case.blame(KILL) is None
    case.at = Trying(problem=0, candidate=2)
    assert case.blame(KILL) == 2
    assert dict(case.failed) == {0: {2: "the worker died (signal 9)"}}


def _examined_in_vain(case, trouble):
    case.at = Trying(problem=0)
    case.blame(trouble)
    case.acquit()
    case.at = Trying(problem=0)


def test_problem_that_fails_again_after_all_candidates_ran_alone_fails_as_a_whole():
    case = _case()
    _examined_in_vain(case, INSIDE)
    assert case.suspect is None
    assert case.blame(INSIDE) is None
    assert case.launched(0, ()) == ()
    assert set(case.failed[0].values()) == {
        "failed together with other candidates, none of which failed alone: an illegal address"
    }


def test_problem_survives_three_kills():
    case = _case()
    for _ in range(3):
        _examined_in_vain(case, KILL)
    assert case.launched(0, ()) == (0, 1, 2)
    case.blame(KILL)
    assert case.launched(0, ()) == ()


def test_retakes_are_of_the_attempt_that_runs():
    case = _case()
    case.begin()
    case.finish((_row(PROBLEMS[0], 0),), 2)
    case.finish((_row(PROBLEMS[1], 0),), 3)
    assert (case.attempt, case.retakes, len(case.rows)) == (1, 5, 2)
    case.begin()
    assert (case.attempt, case.retakes, case.rows) == (2, 0, [])


def test_rows_of_a_problem_are_in_the_order_asked_for_with_those_that_were_not_launched():
    case = _case()
    case.failed[0][1] = "an illegal address"
    assert case.launched(0, {2}) == (0,)
    case.finish((_row(PROBLEMS[0], 0),))
    assert not case.whole
    case.finish((_row(PROBLEMS[1], 0), _row(PROBLEMS[1], 2)))
    assert case.whole
    assert [[(r.m, r.candidate, r.status.value, r.reason) for r in rows] for rows in case.rows] == [
        [
            (1, 0, "ok", ""),
            (1, 1, "launch_failed", "an illegal address"),
            (1, 2, "launch_failed", "not launched: it faulted on 3 problems before"),
        ],
        [(2, 0, "ok", ""), (2, 2, "ok", "")],
    ]
