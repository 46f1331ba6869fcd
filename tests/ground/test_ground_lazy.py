"""A lazy door: names come out of their files when they are asked for, once,
and unknown ones are refused.
"""

import gc
import importlib
import subprocess
import sys

import pytest

from qbench.lazy import gc_paused, loaded_whole


@pytest.fixture
def parlour(tmp_path, monkeypatch):
    """A package of two files behind a lazy door, imported anew."""
    folder = tmp_path / "parlour"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from qbench.lazy import open_on_use\n"
        "if TYPE_CHECKING := False:\n"
        "    from parlour.chairs import sit as sit\n"
        "    from parlour.chairs import stand as stand\n"
        "    from parlour.lamps import light as light\n"
        "__getattr__, __dir__, __all__ = open_on_use(__name__, __file__)\n"
    )
    (folder / "chairs.py").write_text("sit, stand = object(), object()\n")
    (folder / "lamps.py").write_text("raise RuntimeError('too early')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("parlour")
    for name in [name for name in sys.modules if name.partition(".")[0] == "parlour"]:
        del sys.modules[name]


def test_a_name_loads_its_own_file_and_no_other(parlour):
    assert "parlour.chairs" not in sys.modules
    from parlour import sit

    assert sit is sys.modules["parlour.chairs"].sit
    assert "parlour.lamps" not in sys.modules


def test_a_name_is_looked_up_once(parlour):
    first = parlour.sit
    sys.modules["parlour.chairs"].sit = None
    assert parlour.sit is first
    assert vars(parlour)["sit"] is first


def test_every_name_is_listed_before_it_is_loaded(parlour):
    assert parlour.__all__ == ["light", "sit", "stand"]
    assert {"light", "sit", "stand", "__name__"} <= set(dir(parlour))


def test_an_unknown_name_is_refused_in_the_words_of_python(parlour):
    with pytest.raises(AttributeError, match=r"module 'parlour' has no attribute 'sofa'"):
        _ = parlour.sofa
    with pytest.raises(ImportError, match="cannot import name 'sofa'"):
        from parlour import sofa  # noqa: F401


def test_a_fault_of_the_file_is_not_hidden(parlour):
    with pytest.raises(RuntimeError, match="too early"):
        _ = parlour.light


DIMENSIONS = """
import sys
from qbench.lazy import defer_sympy
defer_sympy()
import onnx_ir as ir
assert "sympy" not in sys.modules and "onnx_ir._symbolic_shapes" not in sys.modules
"""


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "code",
    [
        "assert str(ir.SymbolicDim('N') + 1) == 'N + 1'; assert 'sympy' in sys.modules",
        (
            "import sympy.core.expr; assert isinstance((ir.SymbolicDim('N') * 2)._expr, "
            "sympy.core.expr.Expr)"
        ),
        "import sympy; assert ir.SymbolicDim(sympy.Symbol('K')).value == 'K'",
        "from sympy import Max; assert (ir.SymbolicDim('max(2, 3)') + 0).value == str(Max(2, 3))",
        "assert ir.__spec__.loader.get_source('onnx_ir'); assert ir.SymbolicDim('N') == 'N'",
        (
            "import onnx_ir._symbolic_shapes as s; "
            "assert str(s.parse_symbolic_expression('a + b')) == 'a + b'"
        ),
    ],
)
def test_onnx_ir_computes_with_dimensions_though_sympy_is_deferred(code):
    subprocess.run([sys.executable, "-c", DIMENSIONS + code], check=True, timeout=600)


@pytest.mark.slow
def test_sympy_that_is_used_at_once_is_loaded_at_once(tmp_path):
    """A later onnx_ir may do so: then it gets sympy itself,
    also by the name of a module inside it.
    """
    (tmp_path / "onnx_ir.py").write_text("import sympy\nclass Dim(sympy.Symbol): pass\n")
    code = (
        "from qbench.lazy import defer_sympy; defer_sympy(); import onnx_ir, sympy, sys\n"
        "assert issubclass(onnx_ir.Dim, sympy.Symbol); assert sys.modules['sympy'] is sympy; "
        "assert sympy.__spec__"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600, cwd=tmp_path)


def test_the_collector_of_cycles_rests_while_a_module_is_loaded():
    with loaded_whole():
        assert not gc.isenabled()
        with loaded_whole():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_block_without_collections_made_is_looked_through_last():
    code = (
        "import gc; from qbench.lazy import gc_paused\n"
        "with gc_paused(): made = []\n"
        "print(gc.isenabled(), any(one is made for one in gc.get_objects(generation=2)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]


def test_objects_that_another_thread_freezes_here_are_not_those_of_other_code():
    code = (
        "import sys, threading; from qbench import lazy; sys.setswitchinterval(1e-6)\n"
        "def work():\n"
        "    for _ in range(2000):\n"
        "        with lazy.gc_paused(): pass\n"
        "threads = [threading.Thread(target=work) for _ in range(6)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "print(lazy._FROZEN.is_set())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


def test_what_was_frozen_before_stays_frozen():
    assert gc.get_freeze_count()  # conftest.py freezes what is loaded before the tests
    with gc_paused():
        pass
    assert gc.get_freeze_count()
