"""Two small networks on digits under several schemas,
with feeds that also leave the calibrated ranges.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from qbench.backends import get_backend
from qbench.evaluation import SubjectArtifacts, build_subject
from qbench.faults import Stage, draw_sites, edited, many_operators, with_fault
from qbench.faults.fault import GraphEdit
from qbench.graph import node_key
from qbench.passes import lower_to_integers
from qbench.quantization import Rule, Schema, Spec, get_schema
from qbench.subjects.digits import digits_arrays

MACHINE = get_backend("integer-ort-x64")
ASYMMETRIC = Schema(
    name="asymmetric",
    rules=(
        Rule(
            activation=Spec(qtype="int8", symmetry="asymmetric"),
            weight=Spec(qtype="int8", symmetry="asymmetric"),
        ),
    ),
)
SCHEMAS = (
    get_schema("w8a8_asym_pc"),
    get_schema("w8a8_sym_pc_pow2"),
    get_schema("w8a8_asym_pc_pow2"),
    ASYMMETRIC,
)


@dataclass(eq=False)
class Ground:
    """One network under one schema."""

    shared: SubjectArtifacts
    schema: Schema

    @cached_property
    def quantized(self):
        return self.shared.quantized(self.schema, MACHINE.capabilities).models["model"]

    @cached_property
    def lowered(self):
        return [
            (node_key(node), value.name)
            for node in lower_to_integers(self.quantized).graph
            for value in node.outputs
        ]

    @cached_property
    def healthy(self):
        return run_twice(MACHINE.prepare(self.quantized, taps=[value for _, value in self.lowered]))

    def faulty(self, placed):
        """Tapped results of both batches with the fault."""
        graph, backend = self.quantized, MACHINE
        if placed.fault.stage is Stage.PASS:
            graph = edited(graph, placed)
        else:
            backend = with_fault(backend, placed)
        shown = (
            edited(self.quantized, placed)
            if isinstance(placed.fault.injection, GraphEdit)
            else self.quantized
        )
        there = {value.name for node in lower_to_integers(shown).graph for value in node.outputs}
        return run_twice(
            backend.prepare(graph, taps=[value for _, value in self.lowered if value in there])
        )

    def changed(self, found):
        """The tapped values that are not the healthy ones, in order."""
        return [
            value
            for _, value in self.lowered
            if any(
                value in ours and not np.array_equal(ours[value], right[value])
                for ours, right in zip(found, self.healthy, strict=True)
            )
        ]

    def places(self, fault, seed=1, count=6):
        return draw_sites(fault, self.quantized, seed, count)


def batches():
    pictures, _ = digits_arrays(test=True)
    x = pictures[:16].reshape(-1, 1, 8, 8).astype(np.float32) / 16
    return {"x": x[:8]}, {"x": x[8:] * np.float32(1.6) - np.float32(0.1)}


def run_twice(executor):
    with executor:
        return [executor.run(batch) for batch in batches()]


def make_grounds(cache):
    """Both networks under every schema, made when they are asked for."""
    plain = build_subject("digits_cnn", "digits_test", "digits_train", [], 64)
    works = [
        SubjectArtifacts(subject, cache, get_backend("ort-cpu"), "here")
        for subject in (plain, replace(plain, model=many_operators()))
    ]
    return [Ground(work, schema) for schema in SCHEMAS for work in works]
