"""Extensions that hold something else than tables of functions:
one sentence when they are made, not later.
"""

from pathlib import Path

import numpy as np
import pytest

from qbench.errors import InputError, UnsupportedError
from qbench.extension import Catalogue, Extension, known_extensions, named_also, place_of
from qbench.subjects import Dataset, ReadyArray, WholeOutput, ZooModel, get_model

TABLES = (
    "models",
    "datasets",
    "backends",
    "schemas",
    "range_methods",
    "metrics",
    "arithmetics",
    "operators",
    "passes",
    "formats",
    "fitters",
    "exporters",
)
NO_TABLES = {"a list": ["a"], "a text": "a", "none": None, "a function": dict}
NO_FACTORIES = {
    "a text": "cnn.onnx",
    "none": None,
    "a number": 3,
    "a function of one argument": lambda path: path,
    "a value": Extension(name="inner"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("wrong", NO_TABLES)
def test_what_is_no_table_is_refused_by_its_name(kind, wrong):
    with pytest.raises(InputError) as caught:
        Extension(name="mine", **{kind: NO_TABLES[wrong]})
    assert f"'{kind}' of the Extension 'mine'" in caught.value.doing
    assert caught.value.found == f"a {type(NO_TABLES[wrong]).__name__}"


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("wrong", NO_FACTORIES)
def test_what_is_no_factory_is_refused_by_its_name(kind, wrong):
    with pytest.raises(InputError) as caught:
        Extension(name="mine", **{kind: {"thing": NO_FACTORIES[wrong]}})
    assert f"'{kind}'" in caught.value.doing
    assert "'thing'" in caught.value.doing


def test_names_are_texts():
    with pytest.raises(InputError, match="a int"):
        Extension(name=3)
    with pytest.raises(InputError, match="a int as a name"):
        Extension(name="mine", models={3: dict})


@pytest.mark.parametrize(
    "kind", ["model", "dataset", "backend", "schema", "metric", "arithmetic", "operator"]
)
@pytest.mark.parametrize("value", ["a text", None, 3])
def test_what_a_factory_makes_is_of_its_kind(kind, value):
    catalogue = Catalogue(kind, {}).extended(
        [Extension(name="mine", **{f"{kind}s": {"thing": lambda: value}})]
    )
    with pytest.raises(InputError) as caught:
        catalogue.get("thing")
    assert caught.value.doing == f"Making the {kind} 'thing' of 'mine'"
    assert caught.value.found == f"a {type(value).__name__}"


def test_the_error_of_a_factory_names_its_line_and_keeps_its_type():
    def broken():
        return 1 // 0

    def unsupported():
        raise UnsupportedError("Making it", found="no driver", expected="one", remedy="Install it.")

    extension = Extension(name="mine", models={"broken": broken, "unsupported": unsupported})
    catalogue = Catalogue("model", {}).extended([extension])
    with pytest.raises(InputError, match="ZeroDivisionError") as caught:
        catalogue.get("broken")
    assert (
        f"{Path(__file__).name}', line {broken.__code__.co_firstlineno + 1}" in caught.value.found
    )
    with pytest.raises(UnsupportedError, match="no driver"):
        catalogue.get("unsupported")


def test_code_that_is_read_sees_the_extensions_before_it():
    seen = []

    def load():
        seen.append([one.name for one in known_extensions()])
        get_model("digits_cnn")  # a name of qbench, and no endless loop
        return (Extension(name="mine"),)

    with named_also(load):
        assert "mine" in [one.name for one in known_extensions()]
        known_extensions()
    assert len(seen) == 1
    assert "mine" not in seen[0]
    assert "mine" not in [one.name for one in known_extensions()]


RIGHT = {
    "id": "a",
    "graphs": {"model": dict},
    "preprocess": ReadyArray(),
    "task": WholeOutput(),
    "origin": "here",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 3),
        ("graphs", ["model"]),
        ("graphs", {"model": "cnn.onnx"}),
        ("task", "classification"),
        ("task", None),
        ("task", WholeOutput),
        ("preprocess", "resize=32"),
        ("preprocess", ReadyArray),
        ("preprocess", WholeOutput()),
    ],
)
def test_a_model_is_made_of_loaders_preprocessing_and_a_task(field, value):
    ZooModel(**RIGHT)
    with pytest.raises(InputError, match="Making the model"):
        ZooModel(**{**RIGHT, field: value})


def test_a_class_in_place_of_its_object_is_refused():
    mine = Extension(name="mine", models={"cnn": lambda: ZooModel})
    with pytest.raises(InputError, match=r"found the class ZooModel"):
        Catalogue("model", {}).extended((mine,)).get("cnn")


def test_a_factory_that_calls_itself_names_its_line_once_or_twice():
    mine = Extension(name="mine", models={"cnn": lambda: get_model("cnn")})
    with named_also(lambda: (mine,)), pytest.raises(InputError) as caught:
        get_model("cnn")
    assert "RecursionError" in caught.value.found
    assert len(str(caught.value)) < 800


def test_a_long_message_of_other_code_is_cut():
    def make():
        raise ValueError("a" * 40_000)

    mine = Extension(name="mine", models={"cnn": make})
    with pytest.raises(InputError) as caught:
        Catalogue("model", {}).extended((mine,)).get("cnn")
    assert "(40,012 characters)" in caught.value.found
    assert len(str(caught.value)) < 900


def test_code_of_an_environment_in_the_folder_is_not_code_of_users(tmp_path):
    def error_of(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile("1 / 0", str(file), "exec"))
        return caught.value

    installed = tmp_path / ".venv" / "lib" / "site-packages" / "pack" / "code.py"
    assert place_of(error_of(installed), tmp_path) == ""
    assert "mine.py', line 1" in place_of(error_of(tmp_path / "mine.py"), tmp_path)


LABELS = {
    "a number": (3, "labels of type int"),
    "a text": ("ab", "labels of type str"),
    "numbers": ((1, 2), "labels of samples of type int"),
    "texts": (("a", "b"), "labels of samples of type str"),
    "none of one": (((1,), None), "labels of samples of type NoneType"),
    "fractions": (((1.5,), (2,)), "numbers of type float"),
    "both kinds": (((1,), np.zeros(2)), "arrays next to tuples"),
}


@pytest.mark.parametrize("what", LABELS)
def test_labels_are_whole_numbers_or_arrays_of_each_sample(what):
    labels, found = LABELS[what]
    with pytest.raises(InputError) as caught:
        own_data(labels=labels)
    assert found in caught.value.found


@pytest.mark.parametrize(
    "labels", [None, ((1,), (2, 3)), (np.zeros(2), np.ones(3)), ((np.int64(1),), (True,))]
)
def test_right_labels_are_taken(labels):
    assert own_data(labels=labels).pick([1]).sample_ids == ("b",)


def test_names_of_samples_are_texts():
    with pytest.raises(InputError, match="names of samples of type int"):
        own_data(sample_ids=(1, 2))


def own_data(**changed):
    right = {"sample_ids": ("a", "b"), "sources": ("a", "b"), "labels": None}
    return Dataset(id="own", kind="array", content="own", load=int, **{**right, **changed})
