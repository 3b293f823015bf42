"""The stand-in as the GPU of a Dask worker: ``CUDA_VISIBLE_DEVICES`` says which card it is, and so which noise."""

import os
from contextlib import AbstractContextManager
from typing import Any

from standin import StandInRunner, open_standin

from tilearena.worker_link import Opening


def opening(*, warm_up_s: float = 0.0, **options: Any) -> Opening:
    """How a worker opens the stand-in with these options, see `standin.open_standin`."""
    return Opening(factory="carded:open_carded", arguments=options, warm_up_s=warm_up_s)


def open_carded(link: Any, **options: Any) -> AbstractContextManager[StandInRunner]:
    """The factory."""
    number = os.environ["CUDA_VISIBLE_DEVICES"]
    return open_standin(link, **{"card": f"card {number}", "seed": int(number), **options})
