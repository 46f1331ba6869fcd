"""Backends as an extension lists them: lazily, with what suites need to know before one is made."""

import subprocess
import sys

import onnx_ir as ir
import pytest

from qbench.backends import BackendEntry, Miscomputed, get_backend, integer_backends, miscomputed
from qbench.diagnosis import ModelLint
from qbench.errors import UnsupportedError
from qbench.extension import Extension, named_also

EMPTY = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="empty"), ir_version=10)
FOUND = Miscomputed("pads", "conv1", "pads with ones", "Acme", ("acme-8",))


class Knowing:
    """A backend that knows a mistake of its engine."""

    name, packages, capabilities = "acme", (), None

    def prepare(self, model, *, taps=(), threads=1):
        raise NotImplementedError

    def miscomputed(self, model):
        return (FOUND,)


def broken():
    raise UnsupportedError("Making it", found="nothing", expected="an engine", remedy="Wait.")


def test_an_entry_imports_its_module_when_it_is_made():
    code = (
        "import sys; from qbench.backends import catalogue; from qbench.extension import "
        "known_extensions;"
        "names = catalogue(known_extensions()).names();"
        "print([one for one in sys.modules if one.startswith('qbench_engines.') and not "
        "one.endswith('extension')],"
        " 'numpy' in sys.modules, 'openvino' in names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False True"


def test_an_entry_says_whether_its_backend_runs_float_graphs():
    entries = {
        "mine": BackendEntry("qbench.backends.ort", "OrtBackend", {"name": "mine"}),
        "quantized": BackendEntry("no.such.module", "Backend", runs_float=False),
        "function": Knowing,
    }
    given = [Extension(name="mine", backends=entries)]
    assert integer_backends(given) - integer_backends() == {"quantized"}
    with named_also(lambda: given):
        assert get_backend("mine").name == "mine"


@pytest.mark.parametrize("more", [{}, {"twin": Knowing}, {"broken": broken}])
def test_what_engines_compute_wrong_is_listed_once(more):
    with named_also(lambda: (Extension(name="mine", backends={"acme": Knowing, **more}),)):
        assert miscomputed(EMPTY) == (FOUND,)
    assert miscomputed(EMPTY) == ()


def test_it_counts_where_an_arithmetic_of_the_engine_is_named():
    class Layer:
        def __init__(self, *arithmetics):
            self.limits = dict.fromkeys(arithmetics, ())

    assert ModelLint(layers=(Layer("other", "acme-8"),), miscomputed=(FOUND,)).risky
    assert not ModelLint(layers=(Layer("other"),), miscomputed=(FOUND,)).risky
