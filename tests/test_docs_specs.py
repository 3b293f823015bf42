"""The examples of docs/add-a-workload.md and docs/spaces.md load, and both pages name every key."""

import re
from pathlib import Path

import pytest

from tilearena.draw import Limits
from tilearena.records import Template
from tilearena.space import Default, Screen, Space
from tilearena.spec import Workload, load_space, load_workload, space_names
from tilearena.tile import Tile

DOCS = Path(__file__).parents[1] / "docs"
SPACES = (DOCS / "spaces.md").read_text()


def example(page: str) -> str:
    """The last YAML of a page."""
    return re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[-1]


def test_workload_of_the_page_loads(tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(example("add-a-workload.md"))
    # 2 listed, 6 of the grid, 100 random, 10 of the network
    assert len(load_workload(str(tmp_path / "workload.yaml")).problems_for("s8")) == 118


def test_space_of_the_page_loads(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(example("spaces.md"))
    space = load_space(str(tmp_path / "space.yaml"))
    nine = [t.label for t in load_space("paper9").templates("s8")]
    flat = ["flat/3", "flat/3/k4", "flat/4", "flat/4/k4"]
    assert [t.label for t in space.templates("s8")] == [*nine, *flat, "tall/6/pingpong", "tall/6/pingpong/c2x1"]
    assert [t.label for t in space.templates("b1", "and")] == [*nine, *flat]
    labels = {t.label for t in space.templates("s8")}
    assert {"large/3", "flat/4/k4", "tall/6/pingpong/c2x1"} <= labels  # those in the text


@pytest.mark.parametrize(("title", "model"), [("Keys of a space", Space), ("Keys of a tile", Tile)])
def test_every_key_of_a_space_is_documented(title: str, model: type[Space] | type[Tile]) -> None:
    section = SPACES.split(f"### {title}\n")[1].split("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE) == list(model.model_fields)
    assert all(f"`{key}`" in SPACES for key in (*Screen.model_fields, *Default.model_fields))


def test_every_key_of_a_workload_is_in_the_example() -> None:
    text = example("add-a-workload.md")
    missing = [key for key in (*Workload.model_fields, *Limits.model_fields) if f"{key}:" not in text]
    assert missing == []


def test_page_lists_the_spaces_that_ship_with_their_templates_and_recordings() -> None:
    table = SPACES.split("## Write one")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (\d+) \| (.*?) \|", table, flags=re.MULTILINE)
    spaces = {name: load_space(name) for name in space_names()}
    assert {name: (dtypes.split(", "), int(count)) for name, dtypes, count, _ in rows} == {
        name: (list(space.dtypes), len(space.templates("s8"))) for name, space in spaces.items()
    }
    recorded: dict[str, set[tuple[str, str]]] = {name: set() for name in spaces}
    for path in (DOCS.parent / "baselines" / "recordings" / "nvidia-h200").glob("*/*.parquet"):
        _, space, dtype, *_ = path.name.split(".")
        recorded[space].add((path.parent.name, dtype))
    assert {name: _of_the_page(cell) for name, _, _, cell in rows} == recorded


def _of_the_page(cell: str) -> set[tuple[str, str]]:
    """``s8 and b1 `one`, `two`; s4 `three` `` as (workload, dtype)."""
    parts = [
        (re.findall(r"[sb]\d(?![-\w])", part.split("`")[0]), re.findall(r"`(.*?)`", part)) for part in cell.split(";")
    ]
    return {(spec, dtype) for dtypes, specs in parts for dtype in dtypes for spec in specs}


def test_ids_of_the_page_exist() -> None:
    ids = {t.id for t in load_space("h200-all").templates("s8")}
    named = re.findall(r"^    (s8_\w+)", SPACES, flags=re.MULTILINE)
    assert [id_ for id_ in named if id_ not in ids] == ["s8_128x256x64_w64x64x64_i16x8x32_st3_z4_k2"]
    assert f"With {len(ids)} templates" in SPACES


def _says(t: Template) -> set[str]:
    """Letters that the label of a template may have, by what the page says of each."""
    if t.generator == "cutlass2":
        return {"t"}
    if t.adding:
        return {"a"} if t.swapped == (t.threadblock[1] == 64) else set()
    shared = "k" * (t.split_k > 1 or t.stream_k)
    if t.swapped:
        return {shared + "s"}
    return {shared or {"cooperative": "w", "pingpong": "p", "warp_specialized": "p"}[t.schedule]}


def test_letters_of_labels_say_what_the_page_says() -> None:
    templates = load_space("h200-all").templates("s8")
    found = [(match[1], match[2], t) for t in templates if (match := re.match(r"([a-z]+)\d+x\d+(_\w+)?/", t.label))]
    assert [t.label for letters, _, t in found if letters not in _says(t)] == []
    explained = SPACES.split("the letters before the threadblock")[1].split("`large`")[0]
    assert {letters for letters, _, _ in found} == set(re.findall(r"`([a-z]{1,2})`", explained))
    assert {t.threadblock[2] for _, end, t in found if end == "_k256"} == {256}
    assert {end for _, end, _ in found} == {None, "_k256", "_swizzled"}


def test_readme_counts_the_templates() -> None:
    templates = load_space("h200-all").templates("s8")
    native = sum(t.generator == "cutlass3" for t in templates)
    text = (DOCS.parent / "README.md").read_text()
    assert f"nine, {len(templates) - native} on `mma.sync`, {native} on `wgmma`, all" in text
    assert f"--space h200-all   {len(templates)} templates" in text
