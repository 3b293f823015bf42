"""The published network: a 3 x 128 multilayer perceptron that classifies the best template from M, N, K and SM count.

Guo, Guo, Meinel, Yang, Big Data Mining and Analytics 9(2):632-652, 2026, doi 10.26599/BDMA.2025.9020065. Published: the
four inputs, three hidden layers of 128, batches of 32, Adam at 1e-3, cross-entropy. Not published, so chosen here:
ReLU and He initialisation; inputs as log2, then standardised on the training part (an input that never varies becomes
0); the number of epochs is the one with the lowest cross-entropy on a held-out fifth of the training problems, looked
for until 40 epochs brought nothing better, at most 200; all training problems are then fitted again for that long. With
1,600 of them it is about 20 to 30 epochs. A problem's label is its fastest template.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tilearena.plugins import require_measured, require_same_templates
from tilearena.table import Floats, Ints, Table, Task

HIDDEN = (128, 128, 128)
BATCH, LEARNING_RATE = 32, 1e-3
MAX_EPOCHS, PATIENCE, HELD_OUT = 200, 40, 0.2
ADAM = optax.adam(LEARNING_RATE)


class Layer(NamedTuple):
    """Weight [in, out] and bias [out]."""

    weight: jax.Array
    bias: jax.Array


Network = list[Layer]


def initial(key: jax.Array, sizes: Sequence[int]) -> Network:
    """He-normal weights and zero biases for layers of ``sizes``."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        Layer(jax.random.normal(k, (fan_in, fan_out)) * jnp.sqrt(2.0 / fan_in), jnp.zeros(fan_out))
        for k, (fan_in, fan_out) in zip(keys, pairwise(sizes), strict=True)
    ]


def log_probabilities(network: Network, x: jax.Array) -> jax.Array:
    """Inputs [B, 4] -> log softmax over templates [B, T]."""
    for layer in network[:-1]:
        x = jax.nn.relu(x @ layer.weight + layer.bias)
    return jax.nn.log_softmax(x @ network[-1].weight + network[-1].bias)


def loss(network: Network, x: jax.Array, label: jax.Array) -> jax.Array:
    """Mean cross-entropy of the labels [B]."""
    chosen = jnp.take_along_axis(log_probabilities(network, x), label[:, None], axis=1)
    return -chosen.mean()


@jax.jit
def epoch(
    network: Network, state: optax.OptState, x: jax.Array, label: jax.Array, batches: jax.Array
) -> tuple[Network, optax.OptState]:
    """One Adam step for each row of ``batches`` [S, B] (indices of problems)."""

    def step(carry: tuple[Network, optax.OptState], rows: jax.Array) -> tuple[tuple[Network, optax.OptState], None]:
        network, state = carry
        updates, state = ADAM.update(jax.grad(loss)(network, x[rows], label[rows]), state)
        return (optax.apply_updates(network, updates), state), None

    carry, _ = jax.lax.scan(step, (network, state), batches)
    return carry


held_out_loss = jax.jit(loss)
answer = jax.jit(log_probabilities)


def inputs(problems: Ints, task: Task) -> Floats:
    """log2 of M, N, K and SM count [P, 4]."""
    sm_count = np.full((len(problems), 1), task.device.sm_count)
    log_inputs: Floats = np.log2(np.concatenate([problems, sm_count], axis=1))
    return log_inputs


def training(x: Floats, label: Ints, n_templates: int, seed: int) -> Iterator[Network]:
    """The network after each epoch over inputs [P, 4] and labels [P], without end."""
    rng = np.random.default_rng(seed)
    network = initial(jax.random.key(seed), (x.shape[1], *HIDDEN, n_templates))
    state = ADAM.init(network)
    batch = min(BATCH, len(x))
    while True:
        rows = rng.permutation(len(x))
        # the incomplete last batch is left out; the next shuffle leaves out others
        network, state = epoch(network, state, x, label, rows[: len(x) // batch * batch].reshape(-1, batch))
        yield network


class Mlp:
    """As published; deterministic under the seed."""

    name = "mlp"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Choose the number of epochs on held-out problems, then train on all.

        Raises:
            Declined: fewer than 10 measured problems.
        """
        (train,) = require_measured(self.name, replace(train, others=()))
        self._task, n_problems = train.task, len(train.problems)
        raw = inputs(train.problems, train.task)
        self._mean, spread = raw.mean(axis=0), raw.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        x = (raw - self._mean) / self._spread
        label = train.time_ns.argmin(axis=1)
        order = np.random.default_rng(seed).permutation(n_problems)
        held, kept = np.split(order, [round(HELD_OUT * n_problems)])
        n_templates = train.time_ns.shape[1]
        losses: list[float] = []
        for network in islice(training(x[kept], label[kept], n_templates, seed), MAX_EPOCHS):
            losses.append(float(held_out_loss(network, x[held], label[held])))
            if len(losses) - int(np.argmin(losses)) > PATIENCE:
                break
        network = next(islice(training(x, label, n_templates, seed), int(np.argmin(losses)), None))
        # JAX trains behind the caller's back; without waiting here, ranking would seem to take the rest of the time
        self._network: Network = jax.block_until_ready(network)  # type: ignore[no-untyped-call]

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: -log of the probability that the template is the best."""
        require_same_templates(self.name, self._task, task)
        x = (inputs(problems, task) - self._mean) / self._spread
        return -np.asarray(answer(self._network, x), dtype=np.float64)
