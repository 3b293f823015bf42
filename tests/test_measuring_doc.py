"""The tables of docs/measuring.md are what docs/measuring/*.json say; running this file writes them anew.

The JSON files are results of clock_*.py, two_cards.py and two_cards_speed.py on a GPU.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_figures
from clock_profiler import repeated
from two_cards_tables import two_cards, two_cards_speed

from tilearena.datasheet.tables import table
from tilearena.spec import load_space

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "measuring.md"
UNMEASURED = "Not measured yet."
#: Launching is a large part of what an unheld stream shows of launches below that.
SHORT_NS = 30_000


def where(result: dict[str, Any], *tools: str) -> str:
    """Device, driver, date and the tools' versions."""
    device = result["device"]
    versions = "".join(f", {tool} {result['versions'][tool]}" for tool in tools)
    return f"{device['product']}, driver {device['driver']}, {result['date']}{versions}."


def shape(row: dict[str, Any]) -> str:
    """M x N x K."""
    return f"{row['m']} x {row['n']} x {row['k']}"


def us(time_ns: float) -> str:
    """Microseconds."""
    return f"{time_ns / 1e3:.2f}"


def cupti(result: dict[str, Any]) -> str:
    """A summary for each protocol, then every pair."""
    clock, empty = result["clock"], result["empty_launch"]
    lines = [
        f"{where(result, 'cupti')} Two events with nothing in between are {us(clock['empty_interval_ns'])} us apart, "
        f"with an empty kernel {us(clock['empty_launch_ns'])} us; resolution {clock['resolution_ns']:.0f} ns; "
        f"{result['samples']} samples of each; {result['failed']} failed.",
        empty_launch(empty),
        "",
        *table(
            (
                "",
                "pairs",
                "a launch takes",
                "agree",
                "agree, the bare interval subtracted",
                "CUPTI off: agree",
                "event pair less CUPTI, quartiles",
                "with CUPTI on / off, median",
            ),
            [cupti_summary(name, figures) for name, figures in result["summary"].items()],
        ),
        "",
    ]
    pairs: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        pairs.setdefault((row["dtype"], shape(row), row["template"]), {})[row["protocol"]] = row
    head = ("", "M x N x K", "template", "cold: ours, us", "CUPTI, us", "off", "hot: ours, us", "CUPTI, us", "off")
    body = [[*key[:2], label(*key), *cupti_pair(rows, empty["adds_ns"])] for key, rows in pairs.items()]
    return "\n".join(lines + table(head, body))


def empty_launch(empty: dict[str, float]) -> str:
    """What an event pair adds to a kernel that does nothing."""
    cupti_us, event_us, adds_us = (us(empty[key]) for key in ("cupti_ns", "event_ns", "adds_ns"))
    return (
        f"While CUPTI records, an empty kernel takes {cupti_us} us by CUPTI and {event_us} us by an event pair: "
        f"the pair adds {adds_us} us."
    )


def cupti_summary(name: str, figures: dict[str, Any]) -> list[str]:
    """One protocol."""
    span = f"{us(figures['from_ns'])} us to {figures['to_ns'] / 1e6:.2f} ms"
    added = " / ".join(us(figures["difference_ns"][q]) for q in ("p25", "p50", "p75")) + " us"
    disturbed = f"{1 + figures['disturbed']['p50']:.3f}"
    shares = [f"{figures[key]:.1%}" for key in ("agrees", "agrees_less_empty_interval", "bare_agrees")]
    return [name, str(figures["n"]), span, *shares, added, disturbed]


def cupti_pair(rows: dict[str, dict[str, Any]], adds_ns: float) -> list[str]:
    """Ours less what an event pair adds, and CUPTI's, a launch, and how far apart they are; bold where too far."""
    cells = []
    for name in ("cold", "hot"):
        row = rows.get(name)
        if row is None:
            cells += ["failed"] * 3
            continue
        ours_ns, launches = row["event_ns"] - adds_ns, row["launches"]
        off = f"{ours_ns / row['cupti_ns'] - 1:+.1%}"
        off = off if row["agrees"] else f"**{off}**"
        cells += [us(ours_ns / launches), us(row["cupti_ns"] / launches), off]
    return cells


def label(dtype: str, _: str, template: int) -> str:
    """Tile and stages."""
    return load_space("paper9").templates(dtype, "and" if dtype == "b1" else None)[template].label


def dram(result: dict[str, Any]) -> str:
    """DRAM reads of every problem and protocol, as multiples of A + B."""
    l2_bytes = result["device"]["l2_bytes"]
    passes = ", ".join(map(str, result["passes"]))
    body = [
        [
            shape(row),
            row["protocol"],
            f"{row['operand_bytes'] / 1e6:.1f} MB",
            f"{row['operand_bytes'] / l2_bytes:.2f}",
            f"{sum(row['dram__bytes_read.sum']) / len(row['dram__bytes_read.sum']) / 1e6:.1f} MB",
            f"{row['read_of_operands']:.2f}",
        ]
        for row in result["rows"]
    ]
    head = ("s8, M x N x K", "", "A + B", "of the L2", "read from DRAM, mean", "read / (A + B), median")
    return "\n".join([f"{where(result, 'ncu')} Passes over each kernel: {passes}.", "", *table(head, body)])


def profiler(result: dict[str, Any]) -> str:
    """Speed and repeatability of both methods."""
    body = [
        [
            row["method"],
            row["rows"],
            f"{row['seconds']:.1f}",
            f"{row['rows_per_s']:.0f}",
            f"{row['top1']:.1%}",
            f"{row['top2']:.1%}",
            f"{row['regret_mean']:.3%}",
            f"{row['regret_max']:.1%}",
        ]
        for row in result["rows"]
    ]
    head = ("method", "rows", "s", "rows a second", "same best", "best in first two", "mean regret", "largest")
    lines = [f"{where(result)} {result['n_problems']} problems, twice.", "", *table(head, body), ""]
    return "\n".join(lines + table(("by our cold time", "", *head[4:]), short_and_long(result["rows"])))


def short_and_long(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Of the problems whose fastest template takes less than 30 us by our cold first pass, and of the others."""
    found, ours = [], next(row for row in rows if row["method"] == "tilearena cold")
    short = np.nanmin(np.array(ours["time_ns"][0], dtype=np.float64), axis=1) < SHORT_NS
    for row in rows:
        first, second = (np.array(time_ns, dtype=np.float64) for time_ns in row["time_ns"])
        for name, which in ((f"below {SHORT_NS / 1e3:.0f} us", short), ("others", ~short)):
            figures = repeated(*(np.nan_to_num(time_ns[which], nan=np.inf) for time_ns in (first, second)))
            shares = [f"{figures[key]:.1%}" for key in ("top1", "top2")]
            regrets = [f"{figures['regret_mean']:.3%}", f"{figures['regret_max']:.1%}"]
            found.append([row["method"], f"{which.sum()} {name}", *shares, *regrets])
    return found


def recorded(result: dict[str, Any]) -> str:
    """What the committed recordings say; an empty kernel's time is of the CUPTI section."""
    return recorded_figures.tables(DOCS.parent, result["empty_launch"]["cupti_ns"])


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "cupti": cupti,
    "dram": dram,
    "profiler": profiler,
    "recordings": recorded,
    "two_cards": two_cards,
    "two_cards_speed": two_cards_speed,
}


def source(name: str) -> Path:
    """Where a section's figures lie."""
    return DOCS / "measuring" / f"{'cupti' if name == 'recordings' else name}.json"


def render(name: str) -> str:
    """A section's text."""
    path = source(name)
    return SECTIONS[name](json.loads(path.read_text())) if path.is_file() else UNMEASURED


def bounds(text: str, name: str) -> tuple[int, int]:
    """Where a section's text begins and ends."""
    opening = f"<!-- {name}: tests/test_measuring_doc.py compares this with what was measured -->"
    return text.index(opening) + len(opening), text.index(f"<!-- /{name} -->")


@pytest.mark.parametrize("name", SECTIONS)
def test_tables_are_what_was_measured(name: str) -> None:
    text = PAGE.read_text()
    begin, end = bounds(text, name)
    assert source(name).is_file()
    assert text[begin:end].strip() == render(name)


ABOUT = {
    "device": {"product": "Formula", "driver": "1.0", "l2_bytes": 50_000_000},
    "date": "2026-01-02",
    "versions": {"cupti": "130000", "ncu": "2025.3"},
    "clock": {"empty_interval_ns": 800.0, "empty_launch_ns": 2_200.0, "resolution_ns": 32.0},
}


def test_cupti_table_subtracts_what_an_event_pair_adds_and_marks_what_does_not_agree() -> None:
    row = {"dtype": "s8", "m": 1, "n": 8, "k": 16, "template": 8, "cupti_ns": 10_000}
    cold = row | {"protocol": "cold", "launches": 1, "event_ns": 11_100, "agrees": True}
    hot = row | {"protocol": "hot", "launches": 5, "event_ns": 12_000, "agrees": False}
    quartiles = {"p25": 900, "p50": 1_000, "p75": 1_200}
    shares = {"agrees": 0.5, "agrees_less_empty_interval": 0.25, "bare_agrees": 0.75}
    figures = {"n": 1, "from_ns": 2_000, "to_ns": 5e6, "difference_ns": quartiles, **shares}
    summary = {"cold": figures | {"disturbed": {"p50": 0.004}}}
    result = ABOUT | {"samples": 15, "failed": 0, "summary": summary}
    result |= {"empty_launch": {"cupti_ns": 1_200, "event_ns": 2_200, "adds_ns": 1_000}}
    lines = cupti(result | {"rows": [cold, hot]}).splitlines()
    assert "| cold | 1 | 2.00 us to 5.00 ms | 50.0% | 25.0% | 75.0% | 0.90 / 1.00 / 1.20 us | 1.004 |" in lines
    assert lines[-1] == "| s8 | 1 x 8 x 16 | small/4 | 10.10 | 10.00 | +1.0% | 2.20 | 2.00 | **+10.0%** |"


def test_empty_launch_says_what_a_pair_adds() -> None:
    text = empty_launch({"cupti_ns": 1_200, "event_ns": 2_500, "adds_ns": 1_300})
    assert "takes 1.20 us by CUPTI and 2.50 us by an event pair: the pair adds 1.30 us." in text


def test_dram_table_has_ratios() -> None:
    row = {"m": 1, "n": 8, "k": 16, "protocol": "cold", "operand_bytes": 5_000_000, "read_of_operands": 1.2}
    lines = dram(ABOUT | {"passes": [1], "rows": [row | {"dram__bytes_read.sum": [6e6, 7e6]}]}).splitlines()
    assert lines[0] == "Formula, driver 1.0, 2026-01-02, ncu 2025.3. Passes over each kernel: 1."
    assert lines[-1] == "| 1 x 8 x 16 | cold | 5.0 MB | 0.10 | 6.5 MB | 1.20 |"


def test_profiler_table_has_speed_and_repeatability() -> None:
    speed = {"method": "tilearena cold", "rows": 2_700, "seconds": 162.0, "rows_per_s": 16.7}
    figures = {"top1": 0.68, "top2": 0.9, "regret_mean": 0.0451, "regret_max": 0.6}
    # the first problem is short, and its second pass prefers the other template; the last one has a failed template
    passes = [[[20e3, 30e3, 50e3], [30e3, 40e3, 50e3], [90e3, None, 80e3]]]
    passes += [[[30e3, 20e3, 50e3], [30e3, 40e3, 50e3], [88e3, None, 80e3]]]
    lines = profiler(ABOUT | {"n_problems": 150, "rows": [speed | figures | {"time_ns": passes}]}).splitlines()
    assert lines[4] == "| tilearena cold | 2700 | 162.0 | 17 | 68.0% | 90.0% | 4.510% | 60.0% |"
    assert lines[-2:] == [
        "| tilearena cold | 1 below 30 us | 0.0% | 100.0% | 50.000% | 50.0% |",
        "| tilearena cold | 2 others | 100.0% | 100.0% | 0.000% | 0.0% |",
    ]


def rewrite() -> None:
    """Put the sections' texts into the page."""
    text = PAGE.read_text()
    for name in SECTIONS:
        begin, end = bounds(text, name)
        text = f"{text[:begin]}\n{render(name)}\n{text[end:]}"
    PAGE.write_text(text)


if __name__ == "__main__":
    rewrite()
