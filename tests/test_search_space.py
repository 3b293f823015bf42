"""Templates as points of a search space."""

import numpy as np
import pytest
import scoring

from tilearena.search_space import Points
from tilearena.spec import load_space, space_names


def test_parameters_are_the_fields_that_tell_the_templates_apart():
    points = Points.of(load_space("paper9").templates("s8", None))
    # the warp follows from the threadblock, and all have the same K of a threadblock
    assert points.names == ("threadblock_0", "threadblock_1", "stages")
    assert (points.levels, points.ordered) == ((2, 3, 3), (True, True, True))
    # large/2: 128 is the second of 64 and 128, 256 the third of 64, 128 and 256
    assert points.codes[0].tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", space_names())
def test_every_template_of_a_shipped_space_is_a_point_of_its_own(name):
    space = load_space(name)
    for dtype in space.dtypes:
        templates = space.templates(dtype, "and" if dtype == "b1" else None)
        points = Points.of(templates)
        assert len(np.unique(points.codes, axis=0)) == len(templates)
        assert points.codes.max(axis=0).tolist() == [n - 1 for n in points.levels]


def test_names_and_flags_are_categories_and_numbers_have_an_order():
    one = scoring.template(2)
    templates = [one, one.model_copy(update={"stages": 4}), one.model_copy(update={"swapped": True})]
    points = Points.of([*templates, one.model_copy(update={"schedule": "pingpong"})])
    assert dict(zip(points.names, points.ordered, strict=True)) == {
        "stages": True,
        "schedule": False,
        "swapped": False,
    }


def test_single_template_has_no_parameter_and_is_all_that_is_measured():
    points = Points.of([scoring.template(2)])
    assert (points.names, points.codes.shape) == ((), (1, 0))
    assert points.study(np.array([5.0]), 8, 1, 0) == [0]


def test_nearest_counts_categories_whole_and_numbers_by_their_range():
    points = Points(("stages", "schedule"), np.array([[0, 0], [3, 0], [4, 0], [0, 1]]), (5, 2), (True, False))
    # from (2, 0): two levels of four are 0.5, one is 0.25, the other category 0.5 + 1
    assert points.nearest([2, 0], [0, 1, 2, 3], [0, 0, 0, 0]) == 1
    assert points.nearest([2, 0], [0, 2, 3], [5, 0, 4, 0]) == 2
    assert points.nearest([2, 0], [0, 2, 3], [3, 0, 4, 0]) == 0
    assert points.nearest([0, 1], [0, 2], [0, 0, 0, 0]) == 0
    assert points.nearest([4, 1], [0, 3], [0, 0, 0, 0]) == 3


def test_study_comes_to_avoid_what_fails():
    templates = [
        scoring.template(stages).model_copy(update={"swapped": swapped})
        for stages in range(2, 13)
        for swapped in (False, True)
    ]
    points, fails = Points.of(templates), np.array([template.swapped for template in templates])
    time_ns = np.where(fails, np.inf, 100.0)
    spent = [fails[points.study(time_ns, 11, 5, seed)].sum() for seed in range(20)]
    assert np.mean(spent) < 5  # at random 5.5
