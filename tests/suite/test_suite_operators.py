"""Tables of operators and models without a float one in a suite: what they stand for,
and what has no meaning.
"""

from pathlib import Path

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.judging import EnvironmentClass
from qbench.subjects import list_operators
from qbench.suite import Catalogues, PlannedCell, expand, gather, load_suite

OURS = Path(__file__).parents[2] / "suites" / "operators.qbench.toml"
HEAD = '[suite]\nbackends = ["ort-cpu", "integer-gemmlowp"]\nequal_to = "integer-ort-x64"\n'


@pytest.fixture(scope="module")
def catalogues() -> Catalogues:
    return gather()


def cells(
    folder: Path, catalogues: Catalogues, *tables: str, head: str = HEAD
) -> list[PlannedCell]:
    path = folder / "kernels.qbench.toml"
    path.write_text(head + "".join(f"[[model]]\n{table}\n" for table in tables))
    return list(expand(load_suite(path), catalogues))


def test_one_table_stands_for_all_it_matches(tmp_path, catalogues) -> None:
    found = cells(tmp_path, catalogues, 'id = "op.add.*"')
    assert tuple(dict.fromkeys(planned.cell.model for planned in found)) == list_operators(
        "op.add.*"
    )
    assert {planned.cell.slug for planned in found} == {"ort-cpu+given", "integer-gemmlowp+given"}
    assert all(planned.model.data == planned.model.id for planned in found)
    assert {planned.criterion.backend for planned in found if planned.criterion} == {
        "integer-ort-x64"
    }
    assert {planned.line for planned in found} == {4}


def test_the_later_of_two_tables_holds(tmp_path, catalogues) -> None:
    close = (
        'id = "op.add.odd.*"\nbackends = ["ort-cpu"]\n'
        'close_to = { backend = "integer-ideal", steps = 1 }'
    )
    found = cells(tmp_path, catalogues, 'id = "op.add.*"', close)
    assert tuple(dict.fromkeys(planned.cell.model for planned in found)) == list_operators(
        "op.add.*"
    )
    odd = [planned for planned in found if ".odd." in planned.cell.model]
    assert {planned.cell.slug for planned in odd} == {"ort-cpu+given"}
    assert {planned.criterion.text for planned in odd if planned.criterion} == {
        f"close_to integer-ideal, 1 step (model {planned.cell.model})" for planned in odd
    }
    assert {planned.line for planned in odd} == {6}


@pytest.mark.parametrize(
    ("head", "table", "said"),
    [
        (HEAD, 'id = "op.ad.*"', "unknown operator subject 'op.ad.*'"),
        (
            HEAD.replace("equal_to", "#"),
            'id = "op.pad.u8"',
            "no float model and no 'equal_to' or 'close_to'",
        ),
        (HEAD, 'id = "op.pad.u8"\nfp32 = true', "the name of a float model, or false where"),
        (
            HEAD,
            'id = "op.pad.u8"\nschemas = ["w8a8_sym_pc"]',
            "the key 'schemas' together with 'fp32'",
        ),
        (
            HEAD,
            'id = "op.pad.u8"\n[[model]]\nid = "op.pad.s8"\nfp32 = "op.pad.u8"',
            "came quantized itself",
        ),
        (HEAD.replace("ort-x64", "gemmlowp"), 'id = "op.pad.u8"', "compared with itself"),
    ],
)
def test_what_means_nothing_is_one_sentence(head, table, said, tmp_path, catalogues) -> None:
    with pytest.raises(InputError) as caught:
        cells(tmp_path, catalogues, table, head=head)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_our_suite_tries_every_operator_on_the_engine(catalogues) -> None:
    planned = expand(load_suite(OURS), catalogues)
    assert {one.cell.model for one in planned} == set(list_operators())
    engine = {one.cell.model for one in planned if one.cell.backend == "ort-cpu-precise"}
    assert set(list_operators()) - engine == set(list_operators("op.requantize.*"))
    for one in planned:
        assert one.criterion is not None
        exact = one.criterion.is_exact and one.criterion.backend == "integer-ort-x64"
        assert exact == (
            one.cell.backend.startswith("ort-") and one.cell.model != "op.averagepool.s8.one"
        )
    assert not any(one.quarantine_entry(EnvironmentClass("x64-avx512-vnni")) for one in planned)


@pytest.mark.slow
def test_what_is_listed_without_vnni_is_what_the_two_machines_differ_in(catalogues) -> None:
    """ONNX Runtime has no transposed convolution of integers: that runs in floats,
    whatever the processor.
    """
    from qbench.backends import get_backend
    from qbench.subjects import get_operator, operator_feeds, operator_graph

    planned = expand(load_suite(OURS), catalogues)
    listed = {
        one.cell.model for one in planned if one.quarantine_entry(EnvironmentClass("x64-avx2"))
    }
    differing = set()
    for name in (one.cell.model for one in planned if one.cell.backend == "ort-cpu"):
        subject = get_operator(name)
        model, feeds = operator_graph(subject), operator_feeds(subject)
        answers = []
        for machine in ("integer-ort-x64", "integer-ort-x64-avx2"):
            with get_backend(machine).prepare(model) as executor:
                answers.append(executor.run(feeds)["y"])
        if not np.array_equal(*answers) and subject.operator != "ConvTranspose":
            differing.add(name)
    assert listed == differing
    assert len(listed) == 40
