"""The verb `measure`: on one GPU or several, of this machine or of a Dask cluster."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Annotated, Any, cast

import typer

from tilearena import build, dataset, live
from tilearena.anchors import anchor_problems
from tilearena.cli_options import Dtypes, Json, Root, SpaceName, one_of, print_json
from tilearena.device import visible_devices
from tilearena.errors import MeasureError, SpecError
from tilearena.hands import Hand
from tilearena.measure import Session, opening, record
from tilearena.progress import progress_bar
from tilearena.provenance import Anchors
from tilearena.records import PROTOCOLS, Device, Dtype, Problem, Protocol, ProtocolName
from tilearena.root import find_path, find_root
from tilearena.space import Space
from tilearena.spec import Workload, load_space, load_workload
from tilearena.worker_hand import WorkerHand
from tilearena.worker_link import Opening


@dataclass(frozen=True)
class Where:
    """Which GPUs measure: one of this machine, its first ``workers``, or those of a Dask cluster."""

    ordinal: int
    workers: int
    scheduler: str | None
    sms: int | None
    torch: bool
    instance: bool = False

    def device(self) -> Device | None:
        """What will measure; None where only the cluster knows.

        Raises:
            SpecError: the options contradict each other. NoGpuError, MeasureError: there are no such GPUs.
        """
        if self.instance and (self.scheduler is not None or self.workers > 1):
            raise SpecError("--instance is for one card; leave --workers and --scheduler out, and name it with --gpu")
        if self.scheduler is not None:
            if self.workers > 1 or self.ordinal:
                raise SpecError("--scheduler takes its workers' GPUs; leave --workers and --gpu out")
            return None
        if self.workers > 1:
            if self.ordinal:
                raise SpecError("--workers takes the first GPUs; leave --gpu out, or set CUDA_VISIBLE_DEVICES")
            if self.workers > (visible := len(visible_devices())):
                raise MeasureError(f"--workers {self.workers}: this machine shows {visible} GPUs; give at most that")
        return live.pick_device(self.ordinal, self.sms, instance=self.instance)


def measure(
    spec: str,
    space: SpaceName = None,
    dtype: Dtypes = None,
    protocol: Annotated[list[str] | None, typer.Option(help="cold or hot; repeatable. Default: both.")] = None,
    repeat: Annotated[bool, typer.Option("--repeat", help="Record a second, independent run, for ceilings.")] = False,
    ordinal: Annotated[int, typer.Option("--gpu", min=0, help="Number of the GPU.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Share the problems out among this machine's first GPUs.")] = 1,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, whose GPUs measure.")] = None,
    sms: Annotated[int | None, typer.Option(min=1, help="Use a partition of so many SMs (a green context).")] = None,
    torch: Annotated[bool, typer.Option(help="Time torch._int_mm, too, where torch is installed.")] = True,
    instance: Annotated[
        bool, typer.Option("--instance", help="Record under a slug of this very card, apart from others like it.")
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the problems, evenly spaced. Default: all.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a recording that exists.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Prove exact and time every template on every problem of SPEC; an interrupted run goes on where it stopped."""
    workload = load_workload(spec)
    chosen = load_space(space or workload.space)
    where = Where(ordinal, workers, scheduler, sms, torch, instance)
    device, folder = where.device(), find_root(root)
    timings = cast(tuple[ProtocolName, ...], one_of("--protocol", protocol, PROTOCOLS))
    rows = []
    for name in cast(tuple[Dtype, ...], one_of("--dtype", dtype, workload.dtypes)):
        problems = sampled(workload.problems_for(name), sample)
        protocols = [_protocol(workload, chosen, timing, name, repeat=repeat) for timing in timings]
        sessions = [Session(workload, chosen, problems, how) for how in protocols]
        todo = sessions if device is None else _to_measure(folder, device, sessions, repeat=repeat, force=force)
        if not todo:
            continue
        with _hands(where, device, todo[0]) as hands:
            if device is None:
                todo = _to_measure(folder, hands[0].device, sessions, repeat=repeat, force=force)
            for session in todo:
                rows.append(_measure_one(session, hands, _path(folder, hands[0].device, session, repeat=repeat)))
    if not rows:
        raise MeasureError(
            "all of it was measured before; give --force to measure it again, or --repeat for a second run"
        )
    if as_json:
        print_json(rows)


def _protocol(workload: Workload, space: Space, timing: ProtocolName, dtype: Dtype, *, repeat: bool) -> Protocol:
    how = space.screened(workload.protocol(timing, dtype))
    # a repeat has other operands and another order of launches, or the two runs would not be independent
    return how.model_copy(update={"seed": how.seed + repeat})


def sampled(problems: tuple[Problem, ...], count: int | None) -> tuple[Problem, ...]:
    """``count`` of ``problems``, evenly spaced, the first among them; all for None.

    Raises:
        SpecError: there are not so many.
    """
    if count is None:
        return problems
    if count > len(problems):
        raise SpecError(f"--sample {count}: there are {len(problems)} problems; give at most that")
    return tuple(problems[i * len(problems) // count] for i in range(count))


def _to_measure(
    folder: Path, device: Device, sessions: Sequence[Session], *, repeat: bool, force: bool
) -> list[Session]:
    """The sessions without a recording, or all of them: an interrupted command goes on when it is given again."""
    todo = []
    for session in sessions:
        path = _path(folder, device, session, repeat=repeat)
        if path.exists() and not force:
            _notice(f"{path} exists and is kept")
        else:
            todo.append(session)
    return todo


def _path(folder: Path, device: Device, session: Session, *, repeat: bool) -> Path:
    first, timing = session.problems[0], session.protocol.name
    spec, space = session.workload.name, session.space.name
    return find_path(folder, device.slug, spec, space, first.dtype, timing, first.op, repeat)


@contextmanager
def _hands(where: Where, device: Device | None, session: Session) -> Iterator[Sequence[Hand]]:
    if where.scheduler is not None:
        # distributed is an extra
        from tilearena.cluster import connect

        how = opening(session, sms=where.sms, torch=where.torch)
        with connect(where.scheduler, how, notice=_notice) as hands:
            yield hands
        return
    assert device is not None
    first = session.problems[0]
    with progress_bar(f"build {first.dtype}") as progress:  # once, before several workers would wait for each other
        templates = session.space.templates(first.dtype, first.bit_op)
        build.build(live.library_name(session.space, first.dtype), templates, device.arch, progress=progress)
    ordinals = range(where.workers) if where.workers > 1 else [where.ordinal]
    openings = [
        opening(session, ordinal=i, sms=where.sms, torch=where.torch, instance=where.instance) for i in ordinals
    ]
    with ExitStack() as stack:
        yield _open_all(openings, stack)


def _open_all(openings: Sequence[Opening], stack: ExitStack) -> list[WorkerHand]:
    """Open all at the same time; ``stack`` closes them."""
    stop = Event()

    def open_one(opening: Opening) -> WorkerHand:
        hand = WorkerHand(opening, notice=_notice, stop=stop)
        stack.enter_context(hand)
        return hand

    with ThreadPoolExecutor(len(openings)) as pool:
        try:
            return list(pool.map(open_one, openings))
        except BaseException:  # Ctrl-C, or one failed: the others may wait for a GPU that another process has
            stop.set()
            raise


def _notice(text: str) -> None:
    print(text, file=sys.stderr)


def _measure_one(session: Session, hands: Sequence[Hand], path: Path) -> dict[str, Any]:
    first, protocol = session.problems[0], session.protocol
    title = f"{session.workload.name} {first.dtype} {protocol.name}"
    with progress_bar(f"measure {title}") as progress:
        anchors = anchor_problems(first.dtype, first.bit_op)
        header = record(session, hands, path, anchors=anchors, progress=progress)
    recording = dataset.read(path)
    table = recording.table
    failed = sum(status != "ok" for status in recording.rows["status"].to_pylist())
    slowed = sum(batch.slowed for batch in header.batches)
    speed = table.time_ns.size / max(header.wall_time_s, 1e-9)
    print(
        f"{title}: {table.time_ns.size} rows of templates in {header.wall_time_s:.1f} s ({speed:.0f} a second), "
        f"{failed} of all {len(recording.rows)} rows failed; noise floor {_percent(header.noise_floor)}, "
        f"drift {_drift(header.anchors)}, {slowed} of {len(header.batches)} batches slowed by heat; {path}",
        file=sys.stderr,
    )
    return {"path": str(path), "rows": len(recording.rows), "failed": failed, **header.model_dump(mode="json")}


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.2f} %"


def _drift(anchors: Sequence[Anchors]) -> str:
    """Of each card in each session: to its middle, and to its end."""
    found = [(one.drift_to_middle, one.drift) for one in anchors if one.drift is not None]
    signed = [["unknown" if drift is None else f"{100 * drift:+.2f} %" for drift in pair] for pair in found]
    return ", ".join(f"{middle} to the middle and {end} to the end" for middle, end in signed) or "unknown"
