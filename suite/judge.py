"""Recordings + picks -> Score: the one way to a score, for fresh predictions and for the referee alike."""

from dataclasses import dataclass
from pathlib import Path

from tilearena import dataset
from tilearena.dataset import Ints, Recording
from tilearena.manifest import Fingerprints
from tilearena.score import Key, Score, score
from tilearena.splits import groups_for, train_spec_for


@dataclass(frozen=True)
class Sources:
    """The recordings of one result: what is tested, what trains (the same for ``random``), and the repeat if any."""

    test: Recording
    train: Recording
    repeat: Recording | None

    @classmethod
    def open(cls, root: Path, key: Key) -> "Sources":
        """Read them below ``root``.

        Raises:
            RecordingError: one is missing or damaged.
            SpecError: the split does not suit the spec.
        """

        def at(spec: str, repeat: bool = False) -> Path:
            return dataset.find_path(root, key.device, spec, key.space, key.dtype, key.protocol, key.op, repeat)

        test = dataset.read(at(key.spec))
        train_spec = train_spec_for(key.split, key.spec)
        train = test if train_spec == key.spec else dataset.read(at(train_spec))
        repeat = at(key.spec, repeat=True)
        return cls(test, train, dataset.read(repeat) if repeat.exists() else None)

    @property
    def fingerprints(self) -> Fingerprints:
        """What a result computed from these must claim."""
        return Fingerprints.of(self.test, self.train, self.repeat)


def judge(
    sources: Sources, key: Key, picks: Ints, constant_picks: Ints, *, predict_us: float | None, reason: str, seed: int
) -> Score:
    """The score of ``picks`` [P, R] by the recordings of ``key``; ``constant_picks`` [P] as in `tilearena.score`."""
    table = sources.test.table
    return score(
        table,
        picks,
        key=key,
        groups=groups_for(key.spec, table.problems),
        repeat=sources.repeat.table if sources.repeat else None,
        noise_floor=sources.test.header.noise_floor,
        predict_us=predict_us,
        constant_picks=constant_picks,
        reason=reason,
        seed=seed,
    )
