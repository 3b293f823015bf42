"""A cluster that cannot be measured with, or is none, is refused in one sentence when it is connected."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import carded
import pytest
from distributed import LocalCluster

from tilearena import cluster
from tilearena.errors import MeasureError


@contextlib.contextmanager
def _in_this_process(**options):
    settings = {"processes": False, "protocol": "tcp", "dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}
    with LocalCluster(**settings, **options) as local:
        yield local.scheduler_address


def test_same_card_is_refused_before_one_would_wait_for_the_other():
    sentence = "have the same GPU; start each Dask worker with its own CUDA_VISIBLE_DEVICES$"
    with (
        _in_this_process(n_workers=2, resources={"GPU": 1}) as address,
        pytest.raises(MeasureError, match=sentence),
        cluster.connect(address, carded.opening(open_error="BuildError")),
    ):
        pass


def test_cluster_without_a_gpu_says_how_to_start_a_worker():
    with _in_this_process(n_workers=1) as address:
        sentence = f"none of the 1 workers .* offers a GPU; .* dask worker {address} --nthreads 1 --resources GPU=1$"
        with pytest.raises(MeasureError, match=sentence), cluster.connect(address, carded.opening()):
            pass


def test_other_version_at_a_worker_is_refused(monkeypatch):
    with _in_this_process(n_workers=1, resources={"GPU": 1}) as address:
        monkeypatch.setattr(cluster, "__version__", "0.0.1")
        with (
            pytest.raises(MeasureError, match=r"has tilearena \d.*, and this machine 0.0.1; install the same version"),
            cluster.connect(address, carded.opening()),
        ):
            pass


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "nonsense:port", "10.0.0.1", "", "foo://10.0.0.1:1", "tls://127.0.0.1:1"]
)
def test_no_scheduler_is_one_sentence(address, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    advice = "; start one with: dask scheduler, and give its HOST:PORT$"
    sentence = rf"^no Dask scheduler answers at '{address}' \(.+\){advice}"
    with pytest.raises(MeasureError, match=sentence), cluster.connect(address, carded.opening()):
        pass


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad request\r\n\r\n"])
def test_another_server_at_the_address_is_no_scheduler(answer, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        client = pool.submit(server.accept)
        client.add_done_callback(lambda accepted: accepted.result()[0].sendall(answer))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        sentence = rf"^no Dask scheduler answers at '{address}' \(.+\); start one with: dask scheduler"
        with pytest.raises(MeasureError, match=sentence), cluster.connect(address, carded.opening()):
            pass
        client.result()[0].close()


def test_address_of_a_dask_worker_is_no_schedulers():
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as local:
        address = local.workers[0].address
        with (
            pytest.raises(MeasureError, match=rf"^no Dask scheduler answers at '{address}' \(it is a Worker\)"),
            cluster.connect(address, carded.opening()),
        ):
            pass
