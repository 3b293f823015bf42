"""docs/search.md has the tables that its commands write; ``python tests/test_docs_search.py`` writes them anew."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "search.md"
BLOCK = re.compile(r"(```sh\n(tilearena search .*?)\n```\n\n)(.*?)(<!-- /search -->)", re.DOTALL)


def render(command: str) -> str:
    """What a command of the page writes as Markdown."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "table.md"
        program = "from tilearena.cli import main; main()"
        arguments = [sys.executable, "-c", program, *shlex.split(command)[1:], "--out", str(out)]
        subprocess.run(arguments, cwd=PAGE.parents[1], check=True, stdout=subprocess.DEVNULL)
        return out.read_text() + "\n"


def cells(text: str) -> list[list[str]]:
    """Those of a Markdown table."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]


def interval(cell: str) -> tuple[float, float, float]:
    """Mean, and both ends."""
    mean, low, high = map(float, re.findall(r"[0-9]+\.[0-9]+", cell))
    return mean, low, high


@pytest.mark.parametrize("command", [found[1] for found in BLOCK.findall(PAGE.read_text())])
def test_table_of_the_page_is_what_its_command_writes(command: str) -> None:
    (shown,) = (found[2] for found in BLOCK.findall(PAGE.read_text()) if found[1] == command)
    now = render(command)
    head = cells(now)[0]
    at = head.index("tpe") if "tpe" in head else None
    for mine, anew in zip(cells(shown)[2:], cells(now)[2:], strict=True):
        # Optuna's proposals may hang on the last bit of a logarithm, another one on another machine; it stops early
        if at is not None and anew[at] != "-":
            mean, _, _ = interval(anew[at])
            _, low, high = interval(mine[at])
            assert low <= mean <= high
            mine[at] = anew[at]
        assert mine == anew
    others = [[line for line in text.splitlines() if not line.startswith("|")] for text in (shown, now)]
    assert others[0] == others[1]


def test_page_has_a_table_of_each_kind() -> None:
    assert [cells(found[2])[0][0] for found in BLOCK.findall(PAGE.read_text())] == ["k", "k", "k", "predictor"]


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + render(found[2]) + found[4], PAGE.read_text()))
