"""The program that counts what cold and hot launches read from DRAM: plan, command, table and judgement."""

from pathlib import Path

import clock_dram
import pytest

LOG = """==PROF== Connected to process 7 (/usr/bin/python3)
==PROF== Profiling "Kernel" - 0: 0%....50%....100% - 1 pass
==PROF== Profiling "Kernel" - 1: 0%....50%....100% - 2 passes
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","void cutlass::Kernel<a, b>(T1::Params)","x","dram__bytes_read.sum","byte","8,388,608"
"0","7","void cutlass::Kernel<a, b>(T1::Params)","x","gpu__time_duration.sum","ns","31,456.5"
"1","7","void cutlass::Kernel<a, b>(T1::Params)","x","dram__bytes_read.sum","byte","0"
"1","7","void cutlass::Kernel<a, b>(T1::Params)","x","gpu__time_duration.sum","ns","21,000"
"""


def test_nsight_computes_table_is_read() -> None:
    assert clock_dram.passes(LOG) == [1, 2]
    assert clock_dram.parse(LOG) == [
        {"dram__bytes_read.sum": 8_388_608.0, "gpu__time_duration.sum": 31_456.5},
        {"dram__bytes_read.sum": 0.0, "gpu__time_duration.sum": 21_000.0},
    ]


def test_nsight_computes_scaled_units_and_missing_table_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dram__bytes_read.sum is in Mbyte"):
        clock_dram.parse(LOG.replace('"byte"', '"Mbyte"'))
    with pytest.raises(ValueError, match="No kernels were profiled"):
        clock_dram.parse("==WARNING== No kernels were profiled.\n")


def test_dram_rows_compare_reads_with_the_operands() -> None:
    sizes = {"operand_bytes": 1_000, "output_bytes": 500}
    groups = [
        sizes | {"protocol": "cold", "warm_up": 0, "launches": 3},
        sizes | {"protocol": "hot", "warm_up": 1, "launches": 1},
    ]
    launches = [{clock_dram.READ: float(read)} for read in (1_100, 990, 1_000, 800, 10)]
    cold, hot = clock_dram.rows(groups, launches)
    assert (cold["read_of_operands"], cold[clock_dram.READ]) == (1.0, [1_100, 990, 1_000])
    assert hot["read_of_operands"] == 0.01
    with pytest.raises(ValueError, match="5 launches were made, Nsight Compute counted 4"):
        clock_dram.rows(groups, launches[1:])


@pytest.mark.parametrize(
    ("name", "operand_bytes", "ratio", "meant"),
    [
        ("cold", 100, 0.95, True),
        ("cold", 100, 0.94, False),
        ("hot", 100, 0.05, True),
        ("hot", 100, 0.06, False),
        ("hot", 600, 0.9, None),
    ],
)
def test_protocols_are_judged_by_dram_reads(name: str, operand_bytes: int, ratio: float, meant: bool | None) -> None:
    row = {"protocol": name, "operand_bytes": operand_bytes, "output_bytes": 0, "read_of_operands": ratio}
    assert clock_dram.as_meant(row, 1_000) is meant


def test_nsight_compute_leaves_caches_and_clocks_alone() -> None:
    command = clock_dram.ncu_command("ncu", Path("report"), Path("plan"), [clock_dram.READ])
    text = " ".join(command)
    assert "--cache-control none --clock-control none" in text
    assert "--profile-from-start off" in text
    assert command[-2:] == ["--inside", "plan"]


def test_dram_problems_lie_well_below_below_and_above_the_l2() -> None:
    sizes = [(p.operand_bytes + p.output_bytes) / (60 << 20) for p in clock_dram.PROBLEMS]
    assert sizes == sorted(sizes)
    assert sizes[0] <= 0.5  # of which clock_dram.as_meant asks that nothing is read
    assert sum(0.5 < size < 0.9 for size in sizes) == 3
    assert sizes[-1] > 4
