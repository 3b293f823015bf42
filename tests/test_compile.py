"""Two templates really compiled by the nvcc of this environment, and loaded where there is no GPU."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tilearena import abi, build
from tilearena.spec import load_space

S8, B1 = (load_space("paper9").templates(dtype, bit_op) for dtype, bit_op in (("s8", None), ("b1", "and")))


def cubin_arches(path):
    """Compute capabilities of the device code in an ELF file.

    A fat binary starts with a 16-byte header (magic 0xBA55ED50, header size at 6, size at 8); each entry has its header
    size at 4, its payload's size at 8 and its architecture at 28.
    """
    data, found = path.read_bytes(), []
    for match in re.finditer(re.escape(struct.pack("<I", 0xBA55ED50)), data):
        version, header, size = struct.unpack_from("<HHQ", data, match.start() + 4)
        assert version == 1
        entry, end = match.start() + header, match.start() + header + size
        while entry < end:
            entry_header, payload = struct.unpack_from("<IQ", data, entry + 4)
            found.append(struct.unpack_from("<I", data, entry + 28)[0])
            entry += entry_header + payload
    return found


NO_GPU = """
import json, sys
from pathlib import Path
from tilearena import abi, dataset
from tilearena.build import Library
from tilearena.errors import NoGpuError
from tilearena.records import Problem
from tilearena.gpu_runner import GpuRunner

path, recording = map(Path, sys.argv[1:])
library = abi.load_library(path)
answer = {"gpus": library.ta_gpus(), "library": library.ta_error().decode()}
recording = dataset.read(recording)
described = Library(name="two", arch=90, file=path.name, sources="", versions={})
try:
    device, problem = recording.header.device, Problem(dtype="s8", m=1, n=8, k=16)
    GpuRunner(path, described, recording.templates, recording.header.default, device, [problem], seed=1)
except NoGpuError as error:
    answer["runner"] = str(error)
print(json.dumps(answer))
"""


def without_gpu(library):
    """What a kernel library and its runner say in a process that sees no GPU."""
    golden = Path(__file__).with_name("golden") / "recording-v2.parquet"
    command = [sys.executable, "-c", NO_GPU, str(library), str(golden)]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.compile
@pytest.mark.skipif(shutil.which("g++") is None, reason="nvcc needs g++; CI has it, and a skip is a failure there")
@pytest.mark.parametrize("arch", [80, 90])
def test_two_templates_compile_and_load_without_a_driver(tmp_path, arch):
    templates = (S8[1], B1[6])
    assert [t.label for t in templates] == ["large/3", "small/2"]
    path, library = build.build("two", templates, arch, cache=tmp_path)
    assert library.failures == ()
    assert set(cubin_arches(path)) == {arch}
    kernels = abi.load_library(path)
    assert [kernels.ta_id(i).decode() for i in range(kernels.ta_count())] == [t.id for t in templates]
    answer = without_gpu(path)
    assert answer["gpus"] < 0
    assert answer["library"].startswith("no GPU: ")
    assert answer["runner"] == answer["library"]
    assert "\n" not in answer["runner"]
