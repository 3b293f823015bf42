"""Tests marked ``gpu`` are deselected, not skipped, where there is no GPU: they are another set, run on a GPU box."""

import pytest

from tilearena.device import visible_devices
from tilearena.errors import NoGpuError


def _has_gpu() -> bool:
    try:
        return bool(visible_devices())
    except NoGpuError:
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _has_gpu():
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if item not in gpu]
