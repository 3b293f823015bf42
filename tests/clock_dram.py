"""DRAM traffic of cold and hot launches against the size of A + B: ``python tests/clock_dram.py OUT.json``, about 40 s.

Runs itself under Nsight Compute (``ncu``), caches and clocks left alone. All counters must fit one pass: a second one
would run each kernel again, on operands that the first has just read. Nsight Compute serialises kernels, so the stream
is not held. Problems whose A, B and D fill from two fifths of the L2 of an H200 (60 MB) to many times
it; the default template.
"""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import clock_setup

from tilearena import live
from tilearena.records import PROTOCOLS, Problem
from tilearena.spec import load_space

READ, WRITTEN, SECTORS, TIME = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
    "gpu__time_duration.sum",
)
METRICS = (READ, WRITTEN, SECTORS, TIME)
BASE_UNITS = {"byte", "sector", "ns", "nsecond", ""}
PROBLEMS = tuple(
    Problem(dtype="s8", m=m, n=n, k=k)
    for m, n, k in (
        (2048, 2048, 2048),
        (1024, 2048, 8192),
        (1024, 4096, 4096),
        (512, 8192, 4096),
        (8192, 8192, 16384),
    )
)
SAMPLES, LAUNCHES = 3, {"cold": 1, "hot": 3}
#: Cold launches read A and B at least once, or nearly; hot ones, where A + B and D fit the L2 well, next to nothing.
COLD_AT_LEAST, HOT_AT_MOST = 0.95, 0.05


def launch(plan: Path, problems: Sequence[Problem]) -> None:
    """Inside Nsight Compute: the launches, between the driver's profiler marks; ``plan`` says which they are."""
    from cuda.bindings import driver

    device, space = live.pick_device(), load_space(clock_setup.SPACE)
    groups = []
    with live.open_runner(device, space, "s8", None, problems, seed=clock_setup.SEED) as runner:
        context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1]
        about = clock_setup.about(runner)
        for problem in problems:
            for name in PROTOCOLS:
                protocol = clock_setup.protocol(name)
                trial = runner.prove(problem, protocol, [runner.default], launches=LAUNCHES[name], held=False)
                if failures := trial.begin().failures:
                    raise SystemExit(failures[runner.default].reason)
                driver.cuCtxSetCurrent(context)  # the marks count for the current context's process alone
                driver.cuProfilerStart()
                trial.sample([runner.default] * SAMPLES)
                driver.cuProfilerStop()
                shape = problem.model_dump(include={"m", "n", "k"})
                operands, output = problem.operand_bytes, problem.output_bytes
                sizes = {"protocol": name, "operand_bytes": operands, "output_bytes": output}
                groups.append(
                    shape | sizes | {"warm_up": clock_setup.WARM_UP[name], "launches": SAMPLES * LAUNCHES[name]}
                )
    plan.write_text(json.dumps(about | {"groups": groups}))


def ncu_command(ncu: str, report: Path, plan: Path, metrics: Sequence[str], *arguments: str) -> list[str]:
    """Nsight Compute over this program; only the templates' kernels between the profiler marks are counted."""
    return [
        *(ncu, "--target-processes", "all", "--profile-from-start", "off"),
        *("--cache-control", "none", "--clock-control", "none"),
        *("--kernel-name-base", "demangled", "--kernel-name", "regex:.*cutlass.*"),
        *("--metrics", ",".join(metrics), "--export", str(report), "--force-overwrite"),
        *(sys.executable, __file__, "--inside", str(plan), *arguments),
    ]


def passes(log: str) -> list[int]:
    """How many passes each kernel took, as Nsight Compute says."""
    return [int(number) for number in re.findall(r"- (\d+) pass(?:es)?\b", log)]


def parse(log: str) -> list[dict[str, float]]:
    """Metrics of each profiled launch, in order, in bytes, sectors and ns.

    Raises:
        ValueError: no table, or a unit that is not a base unit.
    """
    lines = log.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        raise ValueError(f"Nsight Compute wrote no table: {log[-2000:]}")
    launches: dict[str, dict[str, float]] = {}
    for cells in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        if cells["Metric Unit"] not in BASE_UNITS:
            raise ValueError(f"{cells['Metric Name']} is in {cells['Metric Unit']}")
        launches.setdefault(cells["ID"], {})[cells["Metric Name"]] = float(cells["Metric Value"].replace(",", ""))
    return [launches[key] for key in sorted(launches, key=int)]


def rows(groups: Sequence[dict[str, Any]], launches: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """One row a group of launches, with every launch's traffic and the ratio of DRAM reads to A + B.

    Raises:
        ValueError: not as many launches were counted as were made.
    """
    made = sum(group["warm_up"] + group["launches"] for group in groups)
    if made != len(launches):
        raise ValueError(f"{made} launches were made, Nsight Compute counted {len(launches)}")
    found, rest = [], list(launches)
    for group in groups:
        rest = rest[group["warm_up"] :]
        mine, rest = rest[: group["launches"]], rest[group["launches"] :]
        read = [launch[READ] for launch in mine]
        more = {metric: [launch[metric] for launch in mine] for metric in METRICS if metric in mine[0]}
        found.append(group | {"read_of_operands": round(median(read) / group["operand_bytes"], 4)} | more)
    return found


def as_meant(row: dict[str, Any], l2_bytes: int) -> bool | None:
    """Whether the protocol does what it says; None for a hot problem that does not fit half of the L2."""
    if row["protocol"] == "cold":
        return bool(row["read_of_operands"] >= COLD_AT_LEAST)
    fits = row["operand_bytes"] + row["output_bytes"] <= l2_bytes / 2
    return bool(row["read_of_operands"] <= HOT_AT_MOST) if fits else None


def measure(*arguments: str) -> dict[str, Any]:
    """Run everything.

    Raises:
        FileNotFoundError: no ncu. CalledProcessError: it failed. RuntimeError: it needs more than one pass.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        # Without ncu first: this builds the kernels, and fails early if they cannot run.
        subprocess.run([sys.executable, __file__, "--inside", str(plan), *arguments], check=True)
        report = Path(folder) / "report.ncu-rep"
        said = _output(ncu_command(ncu, report, plan, METRICS, *arguments))
        if set(passes(said)) != {1}:
            raise RuntimeError(f"Nsight Compute took {sorted(set(passes(said)))} passes over a kernel, not one")
        text = _output([ncu, "--import", str(report), "--csv", "--print-units", "base"])
        about = json.loads(plan.read_text())
    found = rows(about.pop("groups"), parse(text))
    for row in found:
        row["as_meant"] = as_meant(row, about["device"]["l2_bytes"])
    version = _output([ncu, "--version"]).split()
    about["versions"]["ncu"] = next((word for word in version if re.match(r"\d+\.\d+", word)), "?")
    return about | {"passes": sorted(set(passes(said))), "metrics": list(METRICS), "rows": found}


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        launch(Path(sys.argv[2]), PROBLEMS[: int(sys.argv[3])] if len(sys.argv) > 3 else PROBLEMS)
    else:
        result = measure()
        for row in result["rows"]:
            print(*(row[key] for key in ("m", "n", "k", "protocol", "read_of_operands", "as_meant")))
        clock_setup.write(Path(sys.argv[1]), result)
