"""The heuristic's machine model and the counts that it is made of, by hand; no measured times here."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_tables import TEST, TRAIN, fitted, mean_regret

from tilearena.conformance import synthetic_task
from tilearena.predictors.default import DefaultTemplate
from tilearena.predictors.geometry import geometry, occupancy, registers_per_thread
from tilearena.predictors.heuristic import DEFAULTS, Heuristic, log_time
from tilearena.synthetic import wide_task


def test_heuristic_adds_parts_of_k_at_once_where_they_add_in_memory():
    """One after the other they cost a latency and a store each, at once the latency of clearing D."""
    adding = next(template for template in wide_task().templates if template.adding)
    in_turns = adding.model_copy(update={"adding": False})
    g = geometry(np.array([[64, 64, 4096]]), replace(wide_task(), templates=(adding, in_turns)))
    rates = dict(DEFAULTS) | {"latency_ns": 500.0, "dram_bytes": 1e12}
    at_once_ns, in_turns_ns = np.exp(log_time(np.array(list(rates.values())), g, cold=True))[0]
    assert adding.split_k == 4
    store_ns = 4 * 64 * 64 / DEFAULTS["store_bytes"]  # of a tile that has no more than D
    assert in_turns_ns - at_once_ns == pytest.approx(3 * (500.0 + store_ns) - 500.0)


def test_heuristic_without_a_fit_beats_the_default_template():
    costs = Heuristic().costs(TEST.problems, TEST.task)
    default = DefaultTemplate().costs(TEST.problems, TEST.task)
    assert mean_regret(costs, TEST) < mean_regret(default, TEST)


def test_heuristic_fit_recovers_the_rates_that_made_the_times():
    rates = np.array(list(DEFAULTS.values())) * [1.5, 0.5, 1.7, 0.7, 0.8, 0.6, 2.0, 1.5]
    g = geometry(TRAIN.problems, TRAIN.task)
    made = replace(TRAIN, time_ns=np.exp(log_time(rates, g, cold=False)))
    fitted_costs = fitted("heuristic", made).costs(TEST.problems, TEST.task)
    expected = log_time(rates, geometry(TEST.problems, TEST.task), cold=False)
    assert np.abs(fitted_costs - expected).mean() < 0.02
    assert np.abs(Heuristic().costs(TEST.problems, TEST.task) - expected).mean() > 0.1


def test_heuristic_counts_dram_reads_of_operands_when_cold_or_larger_than_l2():
    rates = np.array([*list(DEFAULTS.values())[:-1], 1e-6])  # nothing matters but a very slow DRAM
    g = geometry(np.array([[8, 8, 8192], [8, 8, 1 << 20], [1 << 13, 8, 1 << 20]]), TEST.task)
    output, operands = g.output_bytes[:, 0], g.operand_bytes[:, 0]
    assert operands[1] < g.l2_bytes < operands[2]
    cold, hot = (np.exp(log_time(rates, g, cold=c))[:, 0] for c in (True, False))
    assert np.allclose(cold, (operands + output) * 1e6, rtol=1e-3)
    assert np.allclose(hot, (np.maximum(operands - g.l2_bytes, 0) + output) * 1e6, rtol=1e-3)


def test_heuristic_prefers_small_tiles_for_few_rows_and_not_for_many():
    labels = [t.label.split("/")[0] for t in TEST.task.templates]
    costs = Heuristic().costs(np.array([[16, 4096, 4096], [16384, 16384, 8192]]), TEST.task)
    few, many = costs.argmin(axis=1)
    assert labels[few] == "small"
    assert labels[many] in ("large", "medium")


def test_geometry_counts_tiles_steps_and_waves():
    # large/3 of the synthetic space: 128 x 256 x 64; 100 SMs
    g = geometry(np.array([[129, 256, 65 * 16], [12800, 2560, 64]]), TEST.task)
    assert g.tiles[:, 1].tolist() == [2, 1000]
    assert g.steps[:, 1].tolist() == [17, 1]
    assert g.occupancy[0, 1] == 1
    assert g.waves[:, 1].tolist() == [1, 10]
    assert g.padded_share[0, 1] == pytest.approx(1 - 129 / 256)
    assert g.tile_traffic_bytes[0, 1] == (129 * 1 + 256 * 2) * 1040
    b1 = geometry(np.array([[128, 256, 1024]]), synthetic_task("b1"))
    assert b1.row_bytes.item() == 128
    assert b1.steps[0, 1] == 2


def test_occupancy_is_bound_by_registers_then_by_shared_memory():
    templates, device = TEST.task.templates, TEST.task.device
    large2, small4 = templates[0], templates[8]
    assert registers_per_thread(large2) == 232
    assert registers_per_thread(small4) == 104
    assert occupancy(large2, device) == 1  # 256 threads x 232 registers fill the 65,536
    assert occupancy(small4, device) == 4  # 128 x 104 = 13,312
    assert occupancy(small4, device.model_copy(update={"smem_per_sm_bytes": 100 << 10})) == 3  # 33 KiB a block
    assert occupancy(small4, device.model_copy(update={"smem_per_sm_bytes": 1})) == 1
