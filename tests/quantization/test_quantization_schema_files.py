"""The schema files of this repository: each reads, plans a network of the zoo,
and does what it is called for.
"""

from pathlib import Path

import numpy as np
import pytest

from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.quantization import Plan, load_schema, make_plan
from qbench.subjects import get_model

FOLDER = Path(__file__).parents[2] / "suites" / "schemas"
FILES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """Every file's plan of the digits network."""
    model = get_model("digits_cnn").graphs["model"]()
    (x,) = model.graph.inputs
    sizes = [size if isinstance(size, int) else 8 for size in list(x.shape or ())]
    batch = np.random.default_rng(3).uniform(size=sizes).astype(np.float32)
    schemas = {name: load_schema(FOLDER / f"{name}.toml") for name in FILES}
    profiles = {
        pipeline: calibrate(model, [{x.name or "": batch}], pipeline=pipeline)
        for pipeline in {schema.canonical for schema in schemas.values()}
    }
    return {
        name: make_plan(model, profiles[schema.canonical], schema)
        for name, schema in schemas.items()
    }


def test_there_are_some() -> None:
    assert {"first_and_last_float", "entropy_skip_first", "relay_like", "glow_like"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_rule_has_a_use(name: str, plans: dict[str, Plan]) -> None:
    assert plans[name].idle_rules == ()
    assert plans[name].schema == name
    assert 0.3 < plans[name].integer_macs <= 1


def test_the_ends_stay_in_float(plans: dict[str, Plan]) -> None:
    kept = [
        name
        for name, why in plans["first_and_last_float"].floats.items()
        if why.reason.startswith("the first")
    ]
    assert len(kept) == 2
    assert plans["first_and_last_float"].integer_macs < plans["glow_like"].integer_macs == 1.0


def test_biases_of_eight_bits(plans: dict[str, Plan]) -> None:
    plan = plans["relay_like"]
    biases = [qparams for slot, qparams in plan.constants.items() if slot.role.value == "bias"]
    assert biases
    assert {qparams.qtype.name for qparams in biases} == {"int8"}
    for qparams in (*plan.values.values(), *plan.constants.values()):
        assert (np.frexp(qparams.scale)[0] == 0.5).all()


def test_a_file_is_called_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "yours"\n[[rules]]\nreason = "float"\n')
    with pytest.raises(
        InputError, match="found the name 'yours' in it; expected 'mine', as the file is called"
    ):
        load_schema(path)
    path.write_text('name = "mine"\n[[rules]]\nreason = "float"\n')
    assert load_schema(path).name == "mine"
