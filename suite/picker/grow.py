"""A decision tree whose leaves choose a template so that little time is lost: cost-sensitive, not by labels.

It is grown from the root on; each split is the one that lowers a node's impurity the most,

    min over templates of the summed costs  +  SPREAD x the summed variances of the square roots of the costs,

by the N_COMPARED templates whose costs are the least there.

The first part is what the node would lose, the aim. It alone is blind to splits that pay only together with later ones,
where one template is the best on both sides; the second part sees them (variance reduction as in Breiman, Friedman,
Olshen, Stone, Classification and Regression Trees, 1984, over several outputs).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from tilearena.picker import terms
from tilearena.picker.model import LEAF
from tilearena.picker.terms import Term
from tilearena.table import Floats, Ints

#: Weight of the variances. Of 0.03 to 1, on two folds of h200-all, 0.1 and 0.3 lost the least; that was by costs before
#: their root was taken (`tilearena.predictors.picker`).
SPREAD = 0.3
#: Candidate thresholds of a term are its quantiles, this many less one.
N_BINS = 32
#: Splits of a node are compared by so many templates, which takes half of the time of 60. One that is good in a corner
#: of the node alone may be missed: in one small trial trees lost 2.21 % so, and 2.10 % by all.
N_COMPARED = 24
MIN_WEIGHT, MAX_DEPTH = 8.0, 20


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder, as in `tilearena.picker.model.Model`, but ``next`` of a leaf is a row of ``costs`` [L, T]."""

    terms: tuple[Term, ...]
    term: Ints
    threshold: Ints
    next: Ints
    costs: Floats

    def leaves(self, problems: Ints, sm_count: int) -> Ints:
        """The row of ``costs`` [P] that each of ``problems`` [P, 3] comes to on a device of ``sm_count`` SMs."""
        values = evaluate(self.terms, problems, sm_count)
        at = np.zeros(len(problems), dtype=np.int64)
        rows = np.arange(len(problems))
        for _ in range(MAX_DEPTH):
            asked = self.term[at]
            yes = values[rows, asked] <= self.threshold[at]
            at = np.where(asked == LEAF, at, np.where(yes, at + 1, self.next[at]))
        leaves: Ints = self.next[at]
        return leaves


def evaluate(asked: Sequence[Term], problems: Ints, sm_count: int) -> Ints:
    """Values of terms, int64 [P, F]."""
    extents = dict(zip("mnk", problems.T, strict=True))
    columns = [eval(terms.expression(term, sm_count), {}, extents) for term in asked]
    return np.stack(columns, axis=1)


def grow(asked: Sequence[Term], values: Ints, costs: Floats, weights: Floats) -> Tree:
    """A tree on ``values`` [P, F] of the terms ``asked``, for ``costs`` [P, T] of templates and ``weights`` [P]."""
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, N_BINS + 1)[1:-1], method="lower")) for column in values.T]
    codes = np.stack([np.searchsorted(e, column) for e, column in zip(edges, values.T, strict=True)], axis=1)
    sums = np.concatenate([costs, np.sqrt(costs), np.ones((len(costs), 1))], axis=1) * weights[:, None]
    nodes: list[tuple[int, int, int]] = []
    means: list[Floats] = []
    _Growth(codes, edges, _bins(codes), sums, nodes, means).node(np.arange(len(values)), 0)
    used = sorted({term for term, _, _ in nodes if term != LEAF})
    place = {LEAF: LEAF} | {term: i for i, term in enumerate(used)}
    term, threshold, next_ = np.array([(place[t], threshold, next_) for t, threshold, next_ in nodes]).T
    # a term at least, so that there is a column to look at
    return Tree(tuple(asked[t] for t in used or [0]), term, threshold, next_, np.array(means))


@dataclass(frozen=True)
class _Growth:
    codes: Ints  # [P, F] the bin of each value
    edges: list[Ints]  # thresholds between bins
    bins: sparse.csr_matrix  # [P, F * N_BINS] one where a value's bin is
    sums: Floats  # [P, 2 T + 1] weighted: costs, their square roots, one
    nodes: list[tuple[int, int, int]]
    means: list[Floats]

    def node(self, rows: Ints, depth: int) -> None:
        """Append the subtree of ``rows`` in preorder."""
        at = len(self.nodes)
        self.nodes.append((LEAF, 0, len(self.means)))
        split = self._split(rows) if depth < MAX_DEPTH else None
        if split is None:
            total = self.sums[rows].sum(axis=0)
            self.means.append(total[: len(total) // 2] / total[-1])
            return
        term, bin_ = split
        yes = self.codes[rows, term] <= bin_
        self.node(rows[yes], depth + 1)
        self.nodes[at] = (term, int(self.edges[term][bin_]), len(self.nodes))
        self.node(rows[~yes], depth + 1)

    def _split(self, rows: Ints) -> tuple[int, int] | None:
        """Term and bin of the best split, None where none helps."""
        total = self.sums[rows].sum(axis=0)
        if total[-1] < 2 * MIN_WEIGHT:
            return None
        n_templates = len(total) // 2
        least = np.argsort(total[:n_templates], kind="stable")[:N_COMPARED]
        columns = np.concatenate([least, n_templates + least, [2 * n_templates]])
        sums, total = self.sums[np.ix_(rows, columns)], total[columns]
        yes = (self.bins[rows].T @ sums).reshape(-1, N_BINS, len(total))
        for bin_ in range(1, N_BINS):  # np.cumsum along an axis that is not the last one takes four times as long
            yes[:, bin_] += yes[:, bin_ - 1]
        no = total - yes
        allowed = (yes[..., -1] >= MIN_WEIGHT) & (no[..., -1] >= MIN_WEIGHT)
        if not allowed.any():
            return None
        places = np.nonzero(allowed)
        gain = _impurity(total) - _impurity(yes[places]) - _impurity(no[places])
        best = int(gain.argmax())
        if gain[best] <= 1e-9 * total[-1]:
            return None
        return int(places[0][best]), int(places[1][best])


def _impurity(sums: Floats) -> Floats:
    """Of nodes with these weighted ``sums`` [..., 2 T + 1]; what the variances of all splits have in common is out."""
    n_templates = sums.shape[-1] // 2
    roots, weight = sums[..., n_templates:-1], sums[..., -1]
    impurity: Floats = sums[..., :n_templates].min(axis=-1) - SPREAD * np.square(roots).sum(axis=-1) / weight
    return impurity


def _bins(codes: Ints) -> sparse.csr_matrix:
    n_problems, n_terms = codes.shape
    columns = (codes + np.arange(n_terms) * N_BINS).ravel()
    ends = np.arange(n_problems + 1) * n_terms
    return sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=(n_problems, n_terms * N_BINS))
