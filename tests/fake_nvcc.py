"""A fake compiler that counts its calls."""

import os

import pytest

#: Logs what it compiles; a label that matches one of $FAKE_{ERROR,FULL,STAGE,FATAL,KILL} ends that way.
FAKE_NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V${FAKE_VERSION:-13.0.88}"; exit 0; fi
for last; do :; done
case " $* " in
  *" -shared "*) echo link >> "$FAKE_LOG"; echo "$*" > "$last"; exit 0;;
esac
while [ "$1" != -c ]; do shift; done
source=$2
label=$(grep -o 'ta_launch_[a-z0-9_]*(const ta_gemm\\* gemm' "$source" | sed 's/(.*//; s/ta_launch_//')
[ -n "$label" ] || label=$(grep -q 'ta_entries\\[\\] =' "$source" && echo table || echo harness)
echo "$label" >> "$FAKE_LOG"
sleep "${FAKE_SLEEP:-0}"
case "$label" in
  ${FAKE_ERROR:-none}) echo "$source(7): error: warp does not divide" >&2; exit 2;;
  ${FAKE_FULL:-none}) echo "fatal error: $source: No space left on device" >&2; exit 1;;
  ${FAKE_STAGE:-none}) echo "nvcc error : 'cicc' died due to signal 9 (Kill signal)" >&2; exit 9;;
  ${FAKE_FATAL:-none}) echo "nvcc fatal   : Could not open output file '/gone/tmpxft_1'" >&2; exit 1;;
  ${FAKE_KILL:-none}) kill -9 $$;;
esac
cp "$source" "$last"
"""


class FakeNvcc:
    def __init__(self, log):
        self.log = log

    def calls(self):
        """What was compiled or linked since the last time, sorted."""
        calls = sorted(self.log.read_text().split()) if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return calls


@pytest.fixture
def nvcc(tmp_path, monkeypatch):
    """A fake nvcc and fake CUTLASS headers, before any real ones, here and in child processes."""
    bin_, headers = tmp_path / "bin", tmp_path / "python" / "cutlass_library" / "source" / "include" / "cutlass"
    bin_.mkdir()
    (bin_ / "nvcc").write_text(FAKE_NVCC)
    (bin_ / "g++").touch()
    for tool in bin_.iterdir():
        tool.chmod(0o755)
    headers.mkdir(parents=True)
    (headers / "cutlass.h").touch()
    (tmp_path / "python" / "cutlass_library" / "__init__.py").touch()
    monkeypatch.setenv("PATH", str(bin_), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path / "python"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return FakeNvcc(tmp_path / "log")
