"""Problems to learn from against regret: ``python tests/learning_curve.py`` writes docs/results/learning.json.

Every fold of the split is trained on some of its training problems, drawn at random and the smaller draws part of the
larger, and tested on all of its test problems, as `tilearena score` does it. With all of them the worst problems are
kept, so that one can see what they have in common.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilearena.figures import picked, with_failures
from tilearena.judge import Sources, judge
from tilearena.plugin_code import code_fingerprint
from tilearena.predict import Prediction, cross_fit
from tilearena.score import Key
from tilearena.splits import Fold

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "learning.json"
SIZES, N_WORST, TIME_LIMIT_S = (50, 100, 200, 400, 800, 1600, 3200, 6400), 20, 3600
#: Spec, space, dtype, protocol and split of each curve: where a target is missed by the most.
CURVES = (
    ("lowbit-random", "h200-all", "s8", "hot", "random"),
    ("lowbit-full", "paper9", "b1", "hot", "extrapolate"),
)


@dataclass(frozen=True)
class Curve:
    """One subject with its recordings and folds."""

    key: Key
    sources: Sources
    folds: list[Fold]

    @classmethod
    def of(cls, predictor: str, spec: str, space: str, dtype: str, protocol: str, split: str) -> "Curve":
        """Read the recordings."""
        names = {"op": "gemm", "spec": spec, "space": space, "dtype": dtype, "protocol": protocol, "split": split}
        names |= {"device": "nvidia-h200", "predictor": predictor, "version": "any", "train_spec": spec}
        key = Key.model_validate(names | {"support": "native"})
        sources = Sources.open(ROOT, key)
        return cls(key, sources, sources.folds(key, 0))

    def points(self) -> Iterator[tuple[dict[str, Any], Prediction]]:
        """Figures by number of training problems, and the picks; the last has all."""
        most = min(len(fold.train.problems) for fold in self.folds)
        for size in [*(size for size in SIZES if size < most), most]:
            folds = [Fold(fold.train.take(some(len(fold.train.problems), size)), fold.test_rows) for fold in self.folds]
            found = self.fitted(folds)
            yield {"n_problems": size} | self.figures(found), found

    def fitted(self, folds: list[Fold]) -> Prediction:
        """The picks."""
        found = cross_fit(self.key.predictor, folds, self.sources.test.table, time_limit_s=TIME_LIMIT_S, roots=[ROOT])
        if found.reason:
            raise SystemExit(found.reason)
        return found

    def figures(self, found: Prediction) -> dict[str, Any]:
        """Of a fit."""
        score = judge(self.sources, self.key, found.picks, found.constant_picks, predict_us=None, reason="", seed=0)
        names = ("regret_mean", "regret_p99", "regret_at_4", "ceiling_regret_mean", "ceiling_regret_p99")
        flat = score.flat()
        return {
            name: flat[name] for name in (*names[:3], "regret_mean_lo", "regret_mean_hi", *names[3:]) if name in flat
        }

    def worst(self, found: Prediction) -> list[dict[str, Any]]:
        """The problems that lose the most, and their share of all regret."""
        table = self.sources.test.table
        rows = np.sort(np.concatenate([fold.test_rows for fold in self.folds]))
        times = with_failures(table.time_ns[rows])
        regret = picked(times, found.picks[rows])[0][:, 0] / times.min(axis=1) - 1
        labels = [template.label for template in table.task.templates]
        return [
            {
                "problem": table.problems[rows[i]].tolist(),
                "regret": regret[i],
                "share": regret[i] / regret.sum(),
                "pick": labels[found.picks[rows[i], 0]],
                "best": labels[int(times[i].argmin())],
            }
            for i in np.argsort(-regret)[:N_WORST]
        ]


def some(n: int, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sorted rows of a nested draw."""
    return np.sort(np.random.default_rng(0).permutation(n)[:size])


def main(predictor: str = "gbdt") -> None:
    """Fit, show and write."""
    curves = []
    for names in CURVES:
        curve = Curve.of(predictor, *names)
        points, found = [], None
        for point, picks in curve.points():
            points.append(point)
            found = picks
            print(*names, point["n_problems"], f"{point['regret_mean']:.4f}", f"{point['regret_p99']:.3f}", flush=True)
        fingerprint = curve.sources.test.header.fingerprint
        about = dict(zip(("spec", "space", "dtype", "protocol", "split"), names, strict=True))
        curves.append(about | {"fingerprint": fingerprint, "points": points, "worst": curve.worst(found)})
    OUT.parent.mkdir(exist_ok=True)
    whole = {"predictor": predictor, "code_fingerprint": code_fingerprint(predictor), "curves": curves}
    OUT.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
