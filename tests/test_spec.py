import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilearena.errors import SpecError
from tilearena.spec import DEFAULT_ROUNDS, export_schemas, load_space, load_workload

SPECS = Path(__file__).parents[1] / "specs"
BASE = Path(__file__).with_name("golden").joinpath("workload.yaml").read_text(encoding="utf-8")


def write(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def shapes(workload, dtype):
    return [(p.m, p.n, p.k) for p in workload.problems_for(dtype)]


def test_workload_expands_sources_in_order(tmp_path):
    got = shapes(load_workload(write(tmp_path, BASE)), "b1")
    assert got[:2] == [(1, 128, 256), (17, 136, 384)]
    assert got[2:6] == [(1, 8, 128), (1, 16, 128), (2, 8, 128), (2, 16, 128)]
    assert all(m <= 64 and n % 64 == 0 and k % 128 == 0 for m, n, k in got[6:11])
    assert got[11:] == [(1, 128, 256), (3, 128, 256), (1, 64, 128), (3, 64, 128)][1:]


def test_workload_gives_the_bit_operation_to_b1_only(tmp_path):
    workload = load_workload(write(tmp_path, BASE + "bit_op: xor\n"))
    assert {p.bit_op for p in workload.problems_for("b1")} == {"xor"}
    assert {p.bit_op for p in workload.problems_for("s8")} == {None}


def test_workload_without_the_dtype_says_which_it_has(tmp_path):
    with pytest.raises(SpecError, match="'mine' has no s4; it has s8, b1"):
        load_workload(write(tmp_path, BASE)).problems_for("s4")


def test_protocol_takes_rounds_and_seed_from_the_workload(tmp_path):
    workload = load_workload(write(tmp_path, BASE + "seed: 9\n"))
    hot = workload.protocol("hot", "s8")
    assert (hot.name, hot.rounds, hot.seed) == ("hot", 4, 9)
    assert workload.protocol("cold", "s8").rounds == 16


@pytest.mark.parametrize(
    ("name", "dtype", "screen", "rounds", "reference", "margin"),
    [
        ("cold", "s8", 3, 16, 16, 0.10), ("cold", "s4", 1, 3, 3, 0.10), ("cold", "b1", 3, 16, 16, 0.10),
        ("hot", "s8", 2, 6, 3, 0.05), ("hot", "s4", 1, 3, 3, 0.05), ("hot", "b1", 2, 6, 3, 0.05),
    ],
)  # fmt: skip
def test_protocol_has_its_own_rounds_for_each_dtype(tmp_path, name, dtype, screen, rounds, reference, margin):
    text = BASE.replace("rounds: {hot: {s8: 4}}\n", "").replace("[s8, b1]", "[s8, s4, b1]")
    protocol = load_workload(write(tmp_path, text)).protocol(name, dtype)
    assert (protocol.rounds, protocol.reference_rounds, protocol.screen_rounds) == (rounds, reference, screen)
    assert protocol.contender_margin == margin


def test_references_take_no_more_rounds_than_there_are(tmp_path):
    one = load_workload(write(tmp_path, BASE.replace("{s8: 4}", "{s8: 1}"))).protocol("hot", "s8")
    assert (one.rounds, one.reference_rounds) == (1, 1)


def test_rounds_by_dtype_alone_are_refused_and_the_protocols_named(tmp_path):
    with pytest.raises(SpecError, match=r"line 4: rounds\.s8 should be 'cold' or 'hot'"):
        load_workload(write(tmp_path, BASE.replace("{hot: {s8: 4}}", "{s8: 4}")))


def test_draw_of_fewer_is_the_start_of_a_draw_of_more(tmp_path):
    few = load_workload(write(tmp_path, BASE))
    many = load_workload(write(tmp_path, BASE.replace("count: 5", "count: 500")))
    assert shapes(many, "s8")[6:11] == shapes(few, "s8")[6:11]


def test_draw_skips_what_exceeds_the_limits(tmp_path):
    wide = BASE.replace("count: 5", "count: 200")
    free = load_workload(write(tmp_path, wide)).problems_for("s8")
    fast = load_workload(write(tmp_path, wide + "limits: {max_macs: 3_000_000}\n")).problems_for("s8")
    light = load_workload(write(tmp_path, wide + "limits: {max_bytes: 130_000}\n")).problems_for("s8")
    assert max(p.macs for p in free) > 3_000_000 >= max(p.macs for p in fast)
    assert max(p.operand_bytes + p.output_bytes for p in free) > 130_000
    assert max(p.operand_bytes + p.output_bytes for p in light) <= 130_000


def test_draw_may_have_a_limit_of_its_own_but_not_exceed_the_workloads(tmp_path):
    wide = BASE.replace("count: 5", "count: 200")
    own = load_workload(write(tmp_path, wide.replace("count: 200", "count: 200\n      max_macs: 3_000_000")))
    high = load_workload(write(tmp_path, wide.replace("count: 200", "count: 200\n      max_macs: 9_000_000_000_000")))
    limited = load_workload(write(tmp_path, wide + "limits: {max_macs: 3_000_000}\n"))
    free = load_workload(write(tmp_path, wide))
    assert shapes(own, "s8") == shapes(limited, "s8") != shapes(free, "s8")
    assert shapes(high, "s8") == shapes(free, "s8")


def test_draw_gives_as_many_problems_as_it_says_beside_those_before_it(tmp_path):
    once = yaml.safe_load(BASE.replace("count: 5", "count: 50"))
    twice = once | {"problems": once["problems"] + [source for source in once["problems"] if "random" in source]}
    first, both = (shapes(load_workload(write(tmp_path, yaml.safe_dump(text))), "s8") for text in (once, twice))
    assert both[: len(first)] == first
    assert len(set(both)) == len(both) == len(first) + 50


def test_network_tokens_can_be_shared_by_an_alias(tmp_path):
    text = BASE.replace("tokens: [1, 3]", "tokens: &t [1, 3]") + (
        "  - network: {name: B, source: s, layers: {x: [256, 128]}, tokens: *t}\n"
    )
    assert shapes(load_workload(write(tmp_path, text)), "s8")[-2:] == [(1, 256, 128), (3, 256, 128)]


def test_merge_key_inherits_and_own_keys_win(tmp_path):
    text = BASE.replace("m: {range: [1, 64]}", "m: &axis {range: [1, 64], multiples: [2]}").replace(
        "k: {range: [128, 512]}", "k: {<<: *axis, range: [256, 256]}"
    )
    drawn = shapes(load_workload(write(tmp_path, text)), "s8")[6:11]
    assert {k for _, _, k in drawn} == {256}
    assert {m % 2 for m, _, _ in drawn} == {0}


def reordered(value):
    if isinstance(value, dict):
        return {key: reordered(child) for key, child in reversed(value.items())}
    return [reordered(child) for child in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n" + BASE.replace("\n", "\n\n", 1),
        yaml.safe_dump(reordered(yaml.safe_load(BASE)), sort_keys=False),
        json.dumps(yaml.safe_load(BASE)),
        BASE + "op: gemm\nbit_op: and\nspace: paper9\nseed: 0\n",
        BASE.replace("{s8: 4}", f"{{b1: {DEFAULT_ROUNDS['hot']['b1']}, s8: 4}}"),
        BASE.replace("{hot: {s8: 4}}", "{cold: {s4: 3}, hot: {s8: 4}}"),
        BASE + "description: of no weight\n",
    ],
)
def test_fingerprint_ignores_order_comments_and_format(tmp_path, text):
    plain, other = (load_workload(write(tmp_path, t, n)) for t, n in ((BASE, "a.yaml"), (text, "b.yml")))
    assert other.fingerprint == plain.fingerprint
    assert shapes(other, "s8") == shapes(plain, "s8")


@given(st.randoms())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fingerprint_ignores_every_key_order(tmp_path, random):
    def shuffle(value):
        if isinstance(value, dict):
            return {key: shuffle(value[key]) for key in random.sample(list(value), len(value))}
        return [shuffle(child) for child in value] if isinstance(value, list) else value

    text = yaml.safe_dump(shuffle(yaml.safe_load(BASE)), sort_keys=False, default_flow_style=random.random() < 0.5)
    expected = load_workload(write(tmp_path, BASE, "a.yaml"))
    assert load_workload(write(tmp_path, text, "b.yaml")).fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [("[17, 136", "[18, 136"), ("seed: 3", "seed: 4"), ("s8: 4", "s8: 5"), ("[s8, b1]", "[b1, s8]"), ("up:", "wide:")],
)
def test_fingerprint_follows_the_content(tmp_path, old, new):
    plain, other = (load_workload(write(tmp_path, t)) for t in (BASE, BASE.replace(old, new)))
    assert other.fingerprint != plain.fingerprint


def test_unknown_name_lists_the_shipped_ones():
    with pytest.raises(
        SpecError, match="no workload named 'fast'; use anchors, lowbit-full, lowbit-random, networks, quick, or a path"
    ):
        load_workload("fast")
    with pytest.raises(
        SpecError, match="no space named 'paper'; use h200-all, paper9, sm80-wide, sm90-native, or a path"
    ):
        load_space("paper")


@pytest.mark.parametrize("name", ["workload.schema.json", "space.schema.json"])
def test_committed_schema_is_current_and_describes_every_key(tmp_path, name):
    export_schemas(tmp_path)
    schema = json.loads((tmp_path / name).read_text())
    assert json.loads((SPECS / name).read_text()) == schema, "run tilearena.spec.export_schemas on specs/"
    models = [schema, *schema["$defs"].values()]
    undescribed = [key for model in models for key, value in model["properties"].items() if "description" not in value]
    assert undescribed == []
    assert all(model["additionalProperties"] is False for model in models)


def test_name_is_as_long_as_a_submission_allows(tmp_path):
    assert load_workload(write(tmp_path, BASE.replace("name: mine", f"name: {'x' * 64}"))).name == "x" * 64
    with pytest.raises(SpecError, match="name should match the pattern"):
        load_workload(write(tmp_path, BASE.replace("name: mine", f"name: {'x' * 65}")))
