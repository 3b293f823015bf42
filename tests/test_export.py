"""``tilearena export`` writes what is recorded, and refuses the rest in one sentence."""

import json

import pytest

OF = ("--spec", "quick", "--device", "nvidia-h200", "--format", "t4")


def test_export_writes_a_file_for_each_problem(run, tmp_path, recorded):
    code, out, err = run("export", *OF, "--dtype", "b1", "--protocol", "hot", "--out", tmp_path)
    folder = tmp_path / "nvidia-h200" / "quick" / "gemm.paper9.b1.hot"
    problems = recorded("quick", "b1", "hot").table.problems
    names = {f"{m}x{n}x{k}.json" for m, n, k in problems.tolist()} | {"metadata.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert (code, out, err) == (0, f"{len(names)} files are in {folder}\n", "")


def test_export_takes_problems_and_is_cold_by_default(run, tmp_path, recorded):
    table = recorded("quick", "s8", "cold").table
    shapes = ["x".join(map(str, problem)) for problem in table.problems[:2].tolist()]
    arguments = [argument for shape in shapes for argument in ("--problem", shape)]
    code, out, _ = run("export", *OF, "--dtype", "s8", *arguments, "--out", tmp_path)
    assert (code, out.split()[0]) == (0, "3")
    for shape, time_ns in zip(shapes, table.time_ns.tolist(), strict=False):
        (path,) = tmp_path.rglob(f"{shape}.json")
        document = json.loads(path.read_text())
        assert document["metadata"]["protocol"] == "cold"
        assert [r["measurements"][0]["value"] for r in document["results"]] == [ns / 1e6 for ns in time_ns]


def test_export_takes_paths_of_a_workload_and_a_space(run, tmp_path, checkout):
    paths = ("--spec", checkout / "specs/workloads/quick.yaml", "--space", checkout / "specs/spaces/paper9.yaml")
    code, _, err = run("export", *OF, "--dtype", "s8", *paths, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert (tmp_path / "nvidia-h200/quick/gemm.paper9.s8.cold/metadata.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--dtype", "s8", "--problem", "1x2"), "--problem '1x2' is no shape; give it as MxNxK"),
        (("--dtype", "s8", "--problem", "3x8x16"), "cold on nvidia-h200 has no problem 3x8x16"),
        (("--dtype", "f16"), "--dtype 'f16' is unknown; choose from s8, s4, b1"),
        (("--dtype", "s8", "--protocol", "warm"), "--protocol 'warm' is unknown; choose from cold, hot"),
        (("--dtype", "s8", "--space", "wide"), "no recording of gemm/quick/wide/s8/cold on 'nvidia-h200'"),
    ],
)
def test_export_that_cannot_be_is_one_sentence(run, tmp_path, arguments, sentence):
    code, out, err = run("export", *OF, *arguments, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("tilearena: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_export_into_a_file_is_one_sentence(run, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    code, _, err = run("export", *OF, "--dtype", "s8", "--out", taken)
    assert (code, err.count("\n")) == (2, 1)
    assert str(taken) in err
