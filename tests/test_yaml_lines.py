import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilearena.errors import SpecError
from tilearena.spec import load_workload

BASE = Path(__file__).with_name("golden").joinpath("workload.yaml").read_text(encoding="utf-8")


def write(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 9)}]}}\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says"),
    [
        ("version: 1", "version: 1\ntokens: 3", 3, "tokens", "unknown key; use one of name, version"),
        ("k: [128]", "k: [128]\n      j: [1]", 13, "problems.1.grid.j", "unknown key; use one of m, n, k"),
        ("version: 1", "version: '1'", 2, "version", "should be a valid integer, but is '1'"),
        ("version: 1", "version: true", 2, "version", "should be a valid integer, but is True"),
        ("version: 1", "version: 1.0", 2, "version", "should be a valid integer, but is 1.0"),
        ("version: 1", "version: 0", 2, "version", "greater than or equal to 1"),
        ("version: 1\n", "", 1, "version", "is missing; add it"),
        ("name: mine", "name: ../mine", 1, "name", "should match the pattern"),
        ("[17, 136, 384]", "[17, 136, '384']", 8, "problems.0.list.1.2", "should be a valid integer, but is '384'"),
        ("[17, 136, 384]", "[17, true, 384]", 8, "problems.0.list.1.1", "should be a valid integer, but is True"),
        ("[17, 136, 384]", "[17, 136]", 8, "problems.0.list.1.2", "is missing"),
        ("[17, 136, 384]", "[17, 136, 384, 1]", 8, "problems.0.list.1", "has 4 values; give at most 3"),
        ("[17, 136, 384]", "[0, 136, 384]", 8, "problems.0.list.1.0", "greater than or equal to 1"),
        ("[17, 136, 384]", "[17, 136, 9999999]", 8, "problems.0.list.1.2", "less than or equal to 1048576"),
        ("[17, 136, 384]", "17", 8, "problems.0.list.1", "should be a list"),
        ("[17, 136, 384]", "[17, 131, 384]", 8, "problems.0.list.1.1", "n=131, .* multiple of 8 .*; use 128 or 136"),
        ("[17, 136, 384]", "[17, 136, 390]", 8, "problems.0.list.1.2", "k=390, .* 16 as s8 needs; use 384 or 400"),
        ("[17, 136, 384]", "[17, 136, 400]", 8, "problems.0.list.1.2", "k=400, .* 128 as b1 needs; use 384 or 512"),
        ("[17, 136, 384]", "[17, 136, 64]", 8, "problems.0.list.1.2", "k=64, .* 128 as b1 needs; use 128$"),
        ("k: [128]", "k:\n        - 128\n        - 100", 14, "problems.1.grid.k.1", "k=100, .*; use 96 or 112"),
        ("down: [128, 256]", "down: [100, 256]", 24, "problems.3.network.layers.down.0", "n=100, .*; use 96 or 104"),
        ("k: [128]", "k: []", 12, "problems.1.grid.k", "is empty; give at least one value"),
        ("problems:", "problems: []\nx:", 6, "x", "unknown key"),
        ("dtypes: [s8, b1]", "dtypes: []", 3, "dtypes", "is empty"),
        ("dtypes: [s8, b1]", "dtypes: [s8, f8]", 3, "dtypes.1", "should be 's8', 's4' or 'b1', but is 'f8'"),
        ("dtypes: [s8, b1]", "dtypes: [s8, s8]", 3, "dtypes", "holds a dtype twice"),
        ("rounds: {hot: {s8: 4}}", "rounds: {hot: {f8: 4}}", 4, "rounds.hot.f8", "should be 's8', 's4' or 'b1'"),
        ("rounds: {hot: {s8: 4}}", "rounds: {hot: {s8: 99}}", 4, "rounds.hot.s8", "less than or equal to 64"),
        ("m: [1, 2]", "m: 1", 10, "problems.1.grid.m", "should be a list"),
        ("  - random:", "    random:", 9, "problems.1", "has grid, random"),
        ("tokens: [1, 3]", "tokens: [1, 3]\n  - grid:", 26, "problems.4.grid", "is empty; fill it or remove it"),
        ("tokens: [1, 3]", "tokens: [1, 3]\n  - {}", 26, "problems.4", "has none"),
        ("range: [1, 64]", "range: [64, 1]", 16, "problems.2.random.m.range", "give the smaller value first"),
        ("range: [8, 512]", "range: [8, 63]", 17, "problems.2.random.n.range", "no multiple of 64; widen it"),
        ("range: [128, 512]", "range: [129, 250]", 18, "problems.2.random.k.range", "of 128; widen it .b1."),
        (
            "count: 5",
            "count: 3000",
            14,
            "problems.2.random.count",
            r"gave only \d+ problems beside those before; lower it .b1.",
        ),
        ("count: 5", "count: 9999999", 14, "problems.2.random.count", "less than or equal to 200000"),
        ("seed: 3", "seed: -1", 15, "problems.2.random.seed", "greater than or equal to 0"),
        ("seed: 3", "seed: 3\n      ragged_share: .nan", 16, "problems.2.random.ragged_share", "a finite number"),
        ("seed: 3", "seed: 3\n      ragged_share: 1.0e+999", 16, "problems.2.random.ragged_share", "a finite number"),
        ("seed: 3", "seed: 3\n      seed: 4", 16, "problems.2.random.seed", "is given twice; remove one"),
        ("seed: 3", f"seed: {'9' * 30}", 15, "problems.2.random.seed", r"below 2\^63"),
        ("seed: 3", f"seed: {'9' * 9999}", 15, "problems.2.random.seed", "not a number"),
        ("seed: 3", "seed: !!int three", 15, "problems.2.random.seed", "not a number"),
        ("source: a paper", "source: 2024-05-06", 21, "problems.3.network.source", "YAML type !!timestamp"),
        ("source: a paper", "source: !!python/object:os.system x", 21, "problems.3.network.source", "!!python/object"),
        ("source: a paper", "source: !mine x", 21, "problems.3.network.source", "YAML type !mine"),
        ("source: a paper", "1: a paper", 21, "problems.3.network", "a key that is not text; put it in quotes"),
        ("source: a paper", "? [a]\n      : b", 21, "problems.3.network", "a key that is not text"),
        ("source: a paper", "<<: [3]", 21, "problems.3.network", "not a mapping"),
        ("source: a paper", "\tsource: a paper", 21, "", "is not valid YAML: .*found character '.t'"),
        ("m: [1, 2]", "m: [1, 2", 11, "", "is not valid YAML: .*expected ',' or ']'"),
        ("m: [1, 2]", "m: *nobody", 10, "", "is not valid YAML: found undefined alias"),
        ("source: a paper", "source: \x07", 21, "", "control character"),
        ("tokens: [1, 3]", "tokens: [1, 3]\n---\nname: again", 26, "", "single document"),
        ("m: [1, 2]", "m: &m [*m]", 10, "problems.1.grid.m", "too many levels"),
        ("[17, 136, 384]", "[1048576, 1048576, 128]", 8, "problems.0.list.1", "bytes; .* raise limits.max_bytes"),
    ],
)
def test_mistake_names_file_line_and_key(tmp_path, old, new, line, key, says):
    assert BASE.count(old) == 1
    path = write(tmp_path, BASE.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_workload(path)
    message = str(caught.value)
    assert message.startswith(f"{path} line {line}: {key}")
    assert re.search(says, message)
    assert "\n" not in message
    assert len(message) < len(path) + 320


@pytest.mark.parametrize(
    ("limit", "line", "key", "says"),
    [
        ("max_macs: 800_000", 8, "problems.0.list.1", r"gives 17 x 136 x 384 \(s8\), which is 887808 multiply-adds"),
        ("max_bytes: 60_000", 8, "problems.0.list.1", r"gives 17 x 136 x 384 \(s8\), which needs 68000 bytes"),
        ("max_bytes: 1_000", 7, "problems.0.list.0", r"gives .*; shrink it or raise limits.max_bytes \(1000\)"),
    ],
)
def test_written_problem_over_the_limits_is_refused(tmp_path, limit, line, key, says):
    path = write(tmp_path, BASE + f"limits: {{{limit}}}\n")
    with pytest.raises(SpecError, match=rf"line {line}: {key} {says}"):
        load_workload(path)


def test_huge_grid_is_refused_before_it_is_expanded(tmp_path):
    many = "[" + ", ".join(str(128 * i) for i in range(1, 1001)) + "]"
    text = f"name: g\nversion: 1\ndtypes: [s8]\nproblems:\n  - grid: {{m: {many}, n: {many}, k: {many}}}\n"
    with pytest.raises(SpecError, match="line 4: problems expand to 1000000000 problems; give at most 200000"):
        load_workload(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "line 1: a[0-9].* expands to too many values"),
        (MERGE_BOMB, "line 1: a[0-9].* expands to too many values"),
        ("[" * 5000, "line 1: is not valid YAML: RecursionError"),
        ('name: "\\U00110000"', "line 1: is not valid YAML"),
        ("", "line 1: should be a mapping"),
        ("- a\n- b\n", "line 1: should be a mapping"),
        ("just text", "line 1: should be a mapping"),
        ("x: " + "y" * (1 << 20), "is larger than 1048576 bytes"),
    ],
    ids=["aliases", "merges", "nesting", "escape", "empty", "list", "text", "size"],
)
def test_hostile_file_is_refused(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(SpecError, match=says):
        load_workload(path)


def test_unreadable_file_is_refused(tmp_path):
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()
    for name, says in (("none.yaml", "No such file"), ("latin.yaml", "not UTF-8"), ("folder.yaml", "Is a directory")):
        with pytest.raises(SpecError, match=rf"{name}: .*{says}"):
            load_workload(str(tmp_path / name))
    with pytest.raises(SpecError, match="null byte"):
        load_workload("a\0b.yaml")


KEYS = st.sampled_from(
    sorted([*re.findall(r"\w+", BASE), "bit_op", "space", "limits", "max_bytes", "multiples", "ragged_share", "s4"])
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(1, 300)
    | st.floats()
    | st.sampled_from(["s8", "b1", "gemm", "and", "mine", "128"])
    | st.text(max_size=5)
    | st.dates()
    | st.binary(max_size=3)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner),
    max_leaves=25,
)


@given(st.dictionaries(KEYS, TREES, max_size=8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_mapping_raises_nothing_but_spec_error(tmp_path, data):
    path = write(tmp_path, yaml.dump(data))
    with pytest.raises(SpecError, match=r"mine\.yaml line \d+: "):
        load_workload(path)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_workload_is_loaded_or_refused_by_spec_error(tmp_path, data):
    tree = yaml.safe_load(BASE)
    node, depth = tree, data.draw(st.integers(0, 5))
    while True:
        key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if depth == 0 or not isinstance(node[key], dict | list) or not node[key]:
            break
        node, depth = node[key], depth - 1
    node[key] = data.draw(TREES)
    path = write(tmp_path, yaml.dump(tree))
    try:
        workload = load_workload(path)
    except SpecError as error:
        message = str(error)
    else:
        message = f"{path} line 1: none" if all(map(workload.problems_for, workload.dtypes)) else "no problems"
    assert re.match(rf"{re.escape(path)} line \d+: .", message)


def test_pipe_is_refused_since_it_may_never_end(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SpecError, match=r"pipe\.yaml: is no regular file"):
        load_workload(str(tmp_path / "pipe.yaml"))


def test_number_too_large_for_a_float_is_refused(tmp_path):
    path = write(tmp_path, BASE.replace("version: 1", f"version: {':'.join(['59'] * 500)}.5"))
    with pytest.raises(SpecError, match=r"version is '59:59.*, which is not a number"):
        load_workload(path)
