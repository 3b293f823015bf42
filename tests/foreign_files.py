"""Files as other tools write them: cells of `cutlass_profiler`, and labels. Their times are made up."""

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

from standin import DEVICE

from tilearena import dataset
from tilearena.exchange.foreign_csv import Faults, opened
from tilearena.exchange.importing import Target
from tilearena.root import find_path
from tilearena.spec import load_space

PAPER9 = load_space("paper9")
IMPORTED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
#: Best templates of some problems of m = 1, 2, ...
BEST = (1, 1, 0, 8, 1, 8)
#: The header of CUTLASS 3.8 and 4; older versions lack some of these columns.
PROFILER = next(
    csv.reader(
        [
            "Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,split_k_mode,"
            "split_k_slices,batch_count,raster_order,swizzle_size,op_class,accum,cta_m,cta_n,cta_k,cluster_m,cluster_n,"
            "cluster_k,stages,warps_m,warps_n,warps_k,inst_m,inst_n,inst_k,min_cc,max_cc,Bytes,Flops,Flops/Byte,Runtime,"
            "GB/s,GFLOPs"
        ]
    )
)
LABELS = ["device", "sm_count", "dtype", "m", "n", "k", "best"]
DEFAULT = "cutlass_tensorop_i16832gemm_s8_128x256_64x3_tn_align16"
#: The cells of `DEFAULT` on m = 1024, n = 512, k = 256.
CELLS = {
    "Problem": "1",
    "Provider": "CUTLASS",
    "OperationKind": "gemm",
    "Operation": DEFAULT,
    "Disposition": "passed",
    "Status": "success",
    "gemm_kind": "universal",
    "m": "1024",
    "n": "512",
    "k": "256",
    "A": "s8:row",
    "B": "s8:column",
    "C": "s32:column",
    "D": "s32:column",
    "alpha": "1",
    "beta": "0",
    "split_k_mode": "serial",
    "split_k_slices": "1",
    "batch_count": "1",
    "op_class": "tensorop",
    "accum": "s32",
    "cta_m": "128",
    "cta_n": "256",
    "cta_k": "64",
    "stages": "3",
    "warps_m": "2",
    "warps_n": "4",
    "warps_k": "1",
    "inst_m": "16",
    "inst_n": "8",
    "inst_k": "32",
    "Runtime": "0.0123",
}
#: Another kernel on the same problem.
WIDE = {
    "Operation": "cutlass_tensorop_i16832gemm_s8_256x128_64x3_tn_align16",
    "cta_m": "256",
    "cta_n": "128",
    "warps_m": "4",
    "warps_n": "2",
    "Runtime": "0.0456",
}
#: The default of b1.
B1 = {
    "Operation": "cutlass_tensorop_i168256andgemm_b1_128x256_512x3_tn_align128",
    "A": "b1:row",
    "B": "b1:column",
    "k": "1024",
    "cta_k": "512",
    "inst_k": "256",
}


def profiler_file(folder, *changes, columns=PROFILER):
    """A row of `CELLS` for each of ``changes`` to them."""
    return _file(
        folder / "run.gemm.csv", columns, [[(CELLS | change).get(c, "") for c in columns] for change in changes]
    )


def labels_file(folder, *rows, columns=LABELS):
    return _file(folder / "labels.csv", columns, rows)


def label(m, best, *, device=DEVICE.product, sm_count=DEVICE.sm_count, dtype="s8", n=256, k=512):
    return [device, sm_count, dtype, m, n, k, best]


def _file(path: Path, columns, rows):
    path.write_text(text(columns, rows))
    return path


def text(columns, rows):
    """A CSV of these cells."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns, *rows])
    return out.getvalue()


def read_with(contents, path, *given):
    """What ``contents`` makes of the file, and the sentences about rows that were left out."""
    faults = Faults(path)
    with opened(path) as table:
        found = contents(table, *given, faults)
    assert len(faults.sentences) == faults.count
    return found, [sentence.removeprefix(f"{path} ") for sentence in faults.sentences]


def labels_of_best(folder):
    return labels_file(folder, *(label(m, PAPER9.templates("s8")[best].label) for m, best in enumerate(BEST, start=1)))


def recording_of(root, space="paper9", dtype="s8"):
    return dataset.read(find_path(root, DEVICE.slug, "foreign", space, dtype, "hot"))


def target(root, device=DEVICE):
    return Target(root=root, spec="foreign", space=PAPER9, device=device, protocol="hot", imported_at=IMPORTED_AT)
