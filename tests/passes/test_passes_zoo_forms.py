"""Choices of form on real networks, as ONNX Runtime's quantizer writes them: no bit moves, what
is saved is counted.
"""

from pathlib import Path

import pytest
from test_passes_zoo import bits, quantized

from qbench.graph import graph_digest
from qbench.passes import Pipeline, Shared, run_pipeline, storage_cost
from qbench.passes.rewrites.function_tables import FunctionTables
from qbench.passes.rewrites.pairs import ShareQuantize
from qbench.passes.rewrites.rebase import RebaseInt8, RebaseUint8

pytestmark = pytest.mark.slow


def test_other_types_and_tables_move_no_bit(tmp_path: Path) -> None:
    model, feeds = quantized("mobilenet_v2", "photo_crops_128", tmp_path)
    before = bits(model, feeds)
    rebased = run_pipeline(model, Pipeline((RebaseInt8(),))).model
    assert graph_digest(rebased) != graph_digest(model)
    assert bits(rebased, feeds) == before
    assert graph_digest(run_pipeline(rebased, Pipeline((RebaseUint8(),))).model) == graph_digest(
        model
    )
    tables = run_pipeline(model, Pipeline((FunctionTables(),)))
    assert tables.removed >= 30  # an activation behind every other convolution
    assert bits(tables.model, feeds) == before
    shared = run_pipeline(model, Pipeline((ShareQuantize(),))).model
    assert (
        storage_cost(model, Shared.RECOMPUTED).recomputed_nodes > 0
    )  # residual values have two quantizers each
    assert storage_cost(shared, Shared.RECOMPUTED).recomputed_nodes == 0
    assert storage_cost(shared).bytes_written < storage_cost(model).bytes_written
