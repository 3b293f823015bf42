"""The examples of docs/add-a-workload.md load."""

import re
from pathlib import Path

from tilearena.spec import load_space, load_workload

PAGE = Path(__file__).parents[1] / "docs" / "add-a-workload.md"


def test_examples_load(tmp_path: Path) -> None:
    _, workload, space = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "workload.yaml").write_text(workload)
    (tmp_path / "space.yaml").write_text(space)
    # 2 listed, 6 of the grid, 100 random, 10 of the network
    assert len(load_workload(str(tmp_path / "workload.yaml")).problems_for("s8")) == 118
    labels = [t.label for t in load_space(str(tmp_path / "space.yaml")).templates("b1", "and")]
    assert labels == ["large/2", "large/3", "large/4", "small/2", "small/3", "small/4"]
