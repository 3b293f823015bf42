"""A kernel library in place of the shared object, and the GPU runner on it."""

import pytest
import standin

from tilearena import abi
from tilearena.build import Library
from tilearena.gpu_runner import GpuRunner
from tilearena.records import Problem, Protocol
from tilearena.spec import load_space

COLD = Protocol(name="cold", rounds=3, reference_rounds=2, seed=5)
HOT = Protocol(name="hot", rounds=3, reference_rounds=2, seed=5)
PROBLEM = Problem(dtype="s8", m=77, n=104, k=208)
TEMPLATES = load_space("paper9").templates("s8")


class FakeLibrary:
    """Stands for the shared object: notes jobs and turns; a sample is 1000 ns x (entry + 4), 1 ns more each turn."""

    def __init__(self, ids, codes=(), outcomes=None, after=None):
        self.ids, self.codes, self.outcomes, self.after = ids, list(codes), outcomes or {}, after or {}
        self.gpus, self.jobs, self.turns, self.context, self.closed = 1, [], [], 7, []
        self.slots, self.submitted, self.begin_code = {}, {}, 0

    def ta_gpus(self):
        return self.gpus

    def ta_error(self):
        return b"no GPU: no NVIDIA driver is installed"

    def ta_count(self):
        return len(self.ids)

    def ta_id(self, i):
        return self.ids[i].encode()

    def ta_open(self, options):
        raw = options._obj
        self.opened = {name: getattr(raw, name) for name, _ in raw._fields_}
        return self.context

    def ta_close(self, context):
        self.closed.append(context)

    def ta_cublaslt_version(self, context):
        return 130100 if self.opened["cublaslt"] else 0

    def ta_empty_intervals(self, context, launches, count, out):
        for i in range(count):
            out[i] = 1280 + 2048 * launches + 32 * (i % 3)
        return 0

    def ta_prove(self, context, slot, job_pointer):
        job = job_pointer._obj
        names = ("m", "n", "k", "cold", "held", "bits", "seed", "xor_popc", "launches")
        described = {"entries": job.entry[: job.candidates], **{name: getattr(job, name) for name in names}}
        self.externals = job.externals
        self.jobs.append(described)
        self.slots[slot] = described
        return 0

    def ta_begin(self, context, slot, proof):
        self._report(slot, proof._obj, self.outcomes, 1 if self.slots[slot]["cold"] else 4)
        return self.begin_code

    def ta_submit(self, context, slot, count, turns):
        self.submitted[slot] = turns[:count]
        self.turns.append(turns[:count])
        return 0

    def ta_collect(self, context, slot, elapsed_ns, proof):
        for t, turn in enumerate(self.submitted[slot]):
            elapsed_ns[t] = 1000 * (self.slots[slot]["entries"][turn] + 4) + t
        self._report(slot, proof._obj, self.after, 1)
        return self.codes.pop(0) if self.codes else 0

    def _report(self, slot, proof, outcomes, launches):
        for p, entry in enumerate(self.slots[slot]["entries"]):
            proof.launches[p] = launches
            proof.outcome[p], proof.detail[p] = outcomes.get(entry, (0, 0))


def entry_of(candidate):
    return len(TEMPLATES) - 1 - candidate


@pytest.fixture
def open_runner(monkeypatch, tmp_path):
    """Opens a runner on a FakeLibrary; the entries of the library are the templates in reverse."""

    def _open(library=None, failures=(), problems=(PROBLEM,), device=standin.DEVICE, **options):
        library = library or FakeLibrary([t.id for t in reversed(TEMPLATES)])
        monkeypatch.setattr(abi, "load_library", lambda path: library)
        described = Library(name="x", arch=90, file="x.so", sources="abc", versions={"nvcc": "1"}, failures=failures)
        return GpuRunner(tmp_path, described, TEMPLATES, 1, device, problems, seed=3, **options), library

    return _open
