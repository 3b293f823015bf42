"""What the committed recordings of `lowbit-random` say about the clock that made them, for docs/measuring.md.

Speed, noise, drift, ceilings, and how much of a speedup the cost of an interval hides.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from recorded_repeats import race_row, repeat_row

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.datasheet.tables import table
from tilearena.figures import judge
from tilearena.records import BITS
from tilearena.root import find_path
from tilearena.score import rank
from tilearena.table import Floats

DEVICE, SPEC = "nvidia-h200", "lowbit-random"
#: From there on hot and cold are the same on an H200, see docs/measuring/dram.json.
HOT_IS_COLD_BYTES = 50_000_000


def recordings(root: Path, spec: str = SPEC) -> Iterator[tuple[str, Recording, Recording | None]]:
    """``s8 cold``, the recording, and its repeat if there is one; other workloads than `SPEC` with their names."""
    for dtype in ("s8", "b1", "s4"):
        for protocol in ("cold", "hot"):
            paths = [
                find_path(root, DEVICE, spec, "paper9", dtype, protocol, repeat=repeat) for repeat in (False, True)
            ]
            found = [dataset.read(path) if path.is_file() else None for path in paths]
            if found[0] is not None:
                yield f"{dtype} {protocol}" if spec == SPEC else f"{spec} {dtype} {protocol}", found[0], found[1]


def speed_row(name: str, recording: Recording) -> list[str]:
    """Rows a second, and how far the sum of all timed launches is from the time that it took."""
    header, table = recording.header, recording.table
    timed_s = sum(sum(samples) for samples in recording.rows["elapsed_ns"].to_pylist()) * 1e-9
    rows = table.time_ns.size
    return [
        name,
        str(rows),
        str(len(recording.rows)),
        f"{header.wall_time_s:.1f}",
        f"{rows / header.wall_time_s:,.0f}",
        f"{timed_s:.1f}",
        f"{timed_s / header.wall_time_s:.0%}",
    ]


def trust_row(name: str, recording: Recording, repeat: Recording | None) -> list[str]:
    """Card, noise floor, drift of the anchors, power, how much is too large to be hot, and the ceilings."""
    header = recording.header
    bits = BITS[header.dtype]
    m, n, k = recording.table.problems.T
    large = ((m + n) * k * bits // 8 + 4 * m * n > HOT_IS_COLD_BYTES).mean()
    drifts = [one.drift for one in header.anchors if one.drift is not None]
    power = [batch.telemetry.power_w.max for batch in header.batches if batch.telemetry.power_w]
    slowest = [batch.telemetry.sm_clock_mhz.min for batch in header.batches if batch.telemetry.sm_clock_mhz]
    cells = [
        name,
        (header.device.uuid_sha256 or "?")[:4],
        "-" if header.noise_floor is None else f"{header.noise_floor:.2%}",
        ", ".join(f"{drift:+.2%}" for drift in drifts) or "-",
        f"{max(power):.0f} W" if power else "-",
        f"{min(slowest):.0f} MHz" if slowest else "-",
        f"{large:.0%}",
    ]
    if repeat is None:
        return [*cells, "-", "-", "-"]
    table = recording.table
    ranked = rank(table.time_ns)[:, :1]
    means = judge(table, ranked, repeat=repeat.table, noise_floor=None, constant_picks=None, vendor_ns=None).means
    figures = [float(np.nanmean(means[f"ceiling_{key}"])) for key in ("top1", "top2", "regret_mean")]
    return [*cells, f"{figures[0]:.2%}", f"{figures[1]:.2%}", f"{figures[2]:.3%}"]


def ratio_row(name: str, recording: Recording, empty_kernel_ns: float) -> list[str]:
    """The best template over the default and over cuBLASLt, as measured and less what an interval adds to a launch."""
    header = recording.header
    assert header.clock is not None
    adds_ns = header.clock.empty_launch_ns - empty_kernel_ns
    ids = [candidate.id for candidate in header.candidates]
    cells = [name, f"{adds_ns / 1e3:.2f} us"]
    for other in (header.default, ids.index("cublaslt") if "cublaslt" in ids else None):
        if other is None:
            cells += ["-", "-"]
            continue
        for added_ns in (0.0, adds_ns):
            time_ns = less(recording, added_ns)
            best = time_ns[:, : len(recording.templates)].min(axis=1)
            ratio = np.log(time_ns[:, other] / best)
            cells.append(f"{np.exp(ratio[np.isfinite(ratio)].mean()):.3f}x")
    return cells


def less(recording: Recording, adds_ns: float) -> Floats:
    """Times [P, C] of one launch, less its share of what an interval adds; inf where failed."""
    columns = [recording.column_ns(i) for i in range(len(recording.header.candidates))]
    count = len(recording.header.candidates)
    launches = recording.rows["launches"].to_numpy().reshape(-1, count)
    order = recording.rows["candidate"].to_numpy().reshape(-1, count)
    assert (order == np.arange(count)).all()
    return np.stack(columns, axis=1) - adds_ns / np.maximum(launches, 1)


def tables(root: Path, empty_kernel_ns: float) -> str:
    """All tables, each with its caption."""
    found = list(recordings(root))
    repeated = [(name, recording, repeat) for name, recording, repeat in found if repeat is not None]
    everything = [one for spec in (SPEC, "networks", "quick") for one in recordings(root, spec)]
    first = found[0][1].header
    speed = ("", "rows of templates", "all rows", "seconds", "rows of templates a second", "in timed intervals, s", "")
    trust = ("", "card", "noise floor", "drift", "most power", "lowest SM clock", "above 50 MB")
    ratios = ("", "an interval adds", "best / default", "less that", "best / cuBLASLt", "less that")
    race = ("", "spared the final, mean", "second finals", "samples of the best", "of cuBLASLt")
    off = ("repeat / first", "as a whole", "off by: median", "95 %", "99 %", "largest", "anchors")
    lines = [
        f"{first.device.product}, driver {first.device.driver}, {first.started_at[:10]}; `paper9`; `{SPEC}` where no "
        "other workload is named.",
        "",
        "**Speed.** The last column is the share of the seconds that lies in timed intervals.",
        "",
        *table(speed, [speed_row(name, recording) for name, recording, _ in found]),
        "",
        "**Trust.** *card* is the head of the hash of its UUID; *above 50 MB* is the share of problems whose A, B and "
        "D are larger.",
        "",
        *table(
            (*trust, "ceiling top1", "top2", "regret"),
            [trust_row(name, recording, repeat) for name, recording, repeat in everything],
        ),
        "",
        "**Speedups**, as measured and with what an interval adds taken off each time.",
        "",
        *table(ratios, [ratio_row(name, recording, empty_kernel_ns) for name, recording, _ in found]),
        "",
        "**Race.** Templates that were spared the final; hot samples that are too short: the share, the shortest.",
        "",
        *table(race, [race_row(name, recording) for name, recording, _ in found]),
        "",
        "**Repeat.** The time of the best template in the repeat over that in the first recording: the geometric mean "
        "(*as a whole*), and how far single problems are off once that is taken out.",
        "",
        *table(
            (*off, "an empty launch, first / repeat", "launch counts higher / lower"),
            [repeat_row(name, recording, repeat) for name, recording, repeat in repeated],
        ),
    ]
    return "\n".join(lines)
