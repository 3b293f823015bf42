"""Finding nvcc and the CUTLASS headers, or saying what to install."""

import shutil

import pytest
from fake_nvcc import FAKE_NVCC

from tilearena import toolchain
from tilearena.errors import BuildError


def test_old_nvcc_on_path_gives_way_to_the_wheels(nvcc, tmp_path, monkeypatch):
    wheel = tmp_path / "wheel" / "bin" / "nvcc"
    wheel.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "bin" / "nvcc", wheel)
    monkeypatch.setattr(toolchain, "_wheel_nvcc", lambda: wheel)
    assert toolchain.find().nvcc == tmp_path / "bin" / "nvcc"
    (tmp_path / "bin" / "nvcc").write_text(FAKE_NVCC.replace("V${FAKE_VERSION:-13.0.88}", "V11.8.89"))
    assert toolchain.find().nvcc == wheel


def test_nvcc_that_is_too_old_is_refused(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_VERSION", "11.8.89")
    monkeypatch.setattr(toolchain, "_wheel_nvcc", lambda: None)
    with pytest.raises(BuildError, match=r"nvcc is CUDA 11.8.89, but 12.4 or newer is needed; run: pip install"):
        toolchain.find()


@pytest.mark.parametrize(
    ("script", "said"), [("#!/bin/sh\nexit 3\n", "does not run"), ("#!/bin/sh\necho hello\n", "does not say")]
)
def test_nvcc_that_is_none_is_refused(nvcc, tmp_path, script, said):
    (tmp_path / "bin" / "nvcc").write_text(script)
    with pytest.raises(BuildError, match=said):
        toolchain.find()


def test_missing_cutlass_headers_are_named(nvcc, tmp_path):
    (tmp_path / "python" / "cutlass_library" / "source" / "include" / "cutlass" / "cutlass.h").unlink()
    with pytest.raises(BuildError, match=r"no CUTLASS headers .* pip install --no-deps nvidia-cutlass"):
        toolchain.find()
