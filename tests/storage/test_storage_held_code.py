"""The key of what a value holds: every layout that can hold a step, each changed by its code and by
its setting.

A layout is a module ``joined`` with ``made(setting)``; the step itself is ``helper.turn`` or
``helper.Turn``. A stranger adds a row: a text, and an expression that gives a value which holds the
step and its setting.
"""

import functools
import importlib
import json
import subprocess
import sys
import threading

import numpy as np
import pytest

from qbench.evaluation.subject import RecordingTask
from qbench.storage import digest_code, followed_code, held_code

HELPER = """
import functools
FACTOR = 1

def turn(batch, by=1):
    return batch * {code} * by

class Turn:
    def __init__(self, by=1):
        self.by = by

    def __call__(self, batch):
        return batch * {code} * self.by

class Base:
    def prepare(self, batch):
        return turn(batch)
"""

OBJECT = """
import helper

class Held:
    def __init__(self, value):
        self.value = value

    def __call__(self, batch):
        return self.value(batch)
"""

# layout → (the module, the expression that makes the value out of ``setting``)
LAYOUTS = {
    "attribute": (OBJECT, "Held(helper.Turn(setting))"),
    "attribute of an attribute": (OBJECT, "Held(Held(helper.Turn(setting)))"),
    "function in an attribute": (OBJECT, "[Held(helper.turn), Held(setting)]"),
    "list": (OBJECT, "Held([helper.Turn(setting)])"),
    "tuple": (OBJECT, "Held((helper.Turn(setting), 1))"),
    "dictionary": (OBJECT, "Held({'a': helper.Turn(setting)})"),
    "key of a dictionary": (OBJECT, "Held({helper.turn: setting})"),
    "dictionary of a dictionary": (OBJECT, "Held({'a': {'b': [helper.turn, setting]}})"),
    "table": (OBJECT, "Held({'zebra': helper.turn, **{str(i): i * setting for i in range(40)}})"),
    "set": (OBJECT, "Held({helper.turn, setting, 'x', 'y'})"),
    "frozenset": (OBJECT, "Held(frozenset((helper.turn, setting, 'x', 'y')))"),
    "deque": ("import collections\n" + OBJECT, "Held(collections.deque([helper.turn, setting]))"),
    "ordered dictionary": (
        "import collections\n" + OBJECT,
        "Held(collections.OrderedDict(a=helper.turn, b=setting))",
    ),
    "defaultdict": (
        "import collections\n" + OBJECT,
        "Held(collections.defaultdict(helper.Turn, {'a': setting}))",
    ),
    "named tuple": (
        OBJECT + "import typing\nclass Pair(typing.NamedTuple):\n    step: object\n    by: int\n",
        "Pair(helper.turn, setting)",
    ),
    "subclass of a list": (
        OBJECT + "class Steps(list):\n    by = 0\n",
        "Steps([helper.turn, setting])",
    ),
    "attribute of a subclass of a dictionary": (
        OBJECT + "class Steps(dict):\n    pass\ndef filled(by):\n    one = Steps()\n"
        "    one.by = helper.Turn(by)\n    return one\n",
        "filled(setting)",
    ),
    "slots": (
        "import helper\nclass Held:\n    __slots__ = ('__step', 'by')\n"
        "    def __init__(self, by):\n"
        "        self.__step = helper.turn; self.by = by\n",
        "Held(setting)",
    ),
    "array": ("import numpy\n" + OBJECT, "Held([helper.turn, numpy.full(3, setting, 'float32')])"),
    "array of objects": (
        "import numpy\n" + OBJECT,
        "Held(numpy.array([helper.turn, setting], dtype=object))",
    ),
    "large array": (
        "import numpy\n" + OBJECT,
        "Held([helper.turn, numpy.full(600_000, setting, 'int32')])",
    ),
    "bytes": (OBJECT, "Held([helper.turn, bytes([setting]) * 400, bytearray([setting])])"),
    "array.array": ("import array\n" + OBJECT, "Held([helper.turn, array.array('d', [setting])])"),
    "closure": (
        "import helper\ndef make(by):\n    step = helper.turn\n"
        "    return lambda batch: step(batch, by)\n",
        "make(setting)",
    ),
    "closure over an object": (
        "import helper\ndef make(one):\n    return lambda batch: one(batch)\n",
        "make(helper.Turn(setting))",
    ),
    "closure over a dictionary": (
        "import helper\ndef make(one):\n    def run(batch):\n"
        "        return one['step'](batch, one['by'])\n"
        "    return run\n",
        "make({'step': helper.turn, 'by': setting})",
    ),
    "closure over an array": (
        "import helper, numpy\ndef make(by):\n    return lambda batch: helper.turn(batch * by)\n",
        "make(numpy.full(4, setting))",
    ),
    "default": (
        "import helper\ndef make(by):\n    def run(batch, step=helper.turn, by=by):\n"
        "        return step(batch, by)\n"
        "    return run\n",
        "make([setting])",
    ),
    "keyword default": (
        "import helper\ndef make(by):\n    def run(batch, *, step=helper.turn, by=by):\n"
        "        return step(batch, by)\n    return run\n",
        "make(setting)",
    ),
    "attribute of a function": (
        "import helper\ndef make(by):\n    def run(batch):\n"
        "        return run.step(batch, run.by)\n"
        "    run.step, run.by = helper.turn, by\n    return run\n",
        "make(setting)",
    ),
    "partial": ("import functools, helper\n", "functools.partial(helper.turn, by=setting)"),
    "partial of an object": (
        "import functools, helper\n",
        "functools.partial(helper.Turn(setting), 1)",
    ),
    "bound method": (OBJECT, "helper.Turn(setting).__call__"),
    "method of a built-in type": (OBJECT, "[helper.turn, [setting].__getitem__]"),
    "wrapped function": (
        "import functools, helper\ndef scaled(by):\n    def around(step):\n"
        "        @functools.wraps(step)\n"
        "        def run(batch):\n            return step(batch) * by\n        return run\n"
        "    return around\n",
        "scaled(setting)(helper.turn)",
    ),
    "cached function": (
        "import functools, helper\ndef make(by):\n    @functools.lru_cache\n    def run(batch):\n"
        "        return helper.turn(batch, by)\n    return run\n",
        "make(setting)",
    ),
    "wrapper object": (
        "import helper\nclass Around:\n    def __init__(self, one, by):\n"
        "        self.__wrapped__ = one; self.by = by\n"
        "    def prepare(self, batch):\n        return self.__wrapped__(batch) * self.by\n",
        "Around(helper.turn, setting)",
    ),
    "module global": (
        "import helper\nBY = 0\ndef run(batch):\n    return helper.turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "object in a module global": (
        "import helper\nBY = None\nclass Held:\n    def prepare(self, batch):\n"
        "        return BY(batch)\n"
        "run = Held()\n",
        "by_global(helper.Turn(setting))",
    ),
    "global of another module": (
        "import helper\ndef run(batch):\n    return helper.turn(batch) * helper.FACTOR\n",
        "by_other(setting)",
    ),
    "global of another module by a method": (
        "from helper import Base\nimport helper\nclass Held(Base):\n    def scaled(self, batch):\n"
        "        return self.prepare(batch) * helper.FACTOR\nrun = Held()\n",
        "by_other(setting)",
    ),
    "imported in a function": (
        "def run(batch):\n    import helper\n    return helper.turn(batch) * helper.FACTOR\n",
        "by_other(setting)",
    ),
    "imported from in a function": (
        "BY = 0\ndef run(batch):\n    from helper import turn\n    return turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "import_module": (
        "import importlib\nBY = 0\ndef run(batch):\n"
        "    return importlib.import_module('helper').turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "import_module under another name": (
        "from importlib import import_module as load\nBY = 0\ndef run(batch):\n"
        "    return load('helper').turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "import_module in a variable": (
        "import importlib\nBY, LOAD = 0, importlib.import_module\nload = importlib.import_module\n"
        "def run(batch):\n    return load('helper').turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "importorskip": (
        "import pytest\nBY = 0\ndef run(batch):\n"
        "    return pytest.importorskip('helper').turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "pkgutil.resolve_name": (
        "import pkgutil\nBY = 0\ndef run(batch):\n"
        "    return pkgutil.resolve_name('helper:turn')(batch, BY)\n",
        "by_global(setting)",
    ),
    "pydoc.locate": (
        "import pydoc\nBY = 0\ndef run(batch):\n"
        "    return pydoc.locate('helper.turn')(batch, BY)\n",
        "by_global(setting)",
    ),
    "sys.modules": (
        "import sys, helper as _\ndef run(batch):\n"
        "    return sys.modules['helper'].turn(batch) * sys.modules['helper'].FACTOR\n",
        "by_other(setting)",
    ),
    "__import__": (
        "BY = 0\ndef run(batch):\n    return __import__('helper').turn(batch, BY)\n",
        "by_global(setting)",
    ),
    "class attribute": (
        "import helper\nclass Held:\n    by = 0\n    def prepare(self, batch):\n"
        "        return helper.turn(batch, self.by)\n",
        "by_class(setting)",
    ),
    "class attribute of a base": (
        "import helper\nclass Held:\n    by = 0\nclass Below(Held):\n"
        "    def prepare(self, batch):\n"
        "        return helper.turn(batch, self.by)\n",
        "by_class(setting, 'Below')",
    ),
    "base class": (
        "from helper import Base\nclass Held(Base):\n    def __init__(self, by):\n"
        "        self.by = by\n",
        "Held(setting)",
    ),
    "property": (
        "import helper\nclass Held:\n    def __init__(self, by):\n        self._by = by\n"
        "    @property\n"
        "    def step(self):\n        return helper.Turn(self._by)\n",
        "Held(setting)",
    ),
    "method that was put into a class": (
        "import helper\nclass Held:\n    pass\ndef put(by):\n"
        "    Held.prepare = lambda self, batch: helper.turn(batch, by)\n"
        "    return Held()\n",
        "put(setting)",
    ),
    "static method": (
        "import helper\nclass Held:\n    def __init__(self, by):\n        self.by = by\n"
        "    @staticmethod\n"
        "    def prepare(batch):\n        return helper.turn(batch)\n",
        "Held(setting)",
    ),
    "class made by a function": (
        "import helper\ndef make(by):\n    class Held:\n        def prepare(self, batch):\n"
        "            return helper.turn(batch, by)\n    return Held()\n",
        "make(setting)",
    ),
    "class as the value": (
        "import helper\ndef make(by):\n    return type('Held', (helper.Turn,), {'by': by})\n",
        "make(setting)",
    ),
    "dataclass": (
        "import dataclasses, helper\n@dataclasses.dataclass(frozen=True, slots=True)\nclass Held:\n"
        "    step: object\n"
        "    by: int\n",
        "Held(helper.turn, setting)",
    ),
    "enum": (
        "import enum, helper\ndef make(by):\n    class Kind(enum.Enum):\n"
        "        A = (helper.Turn, by)\n"
        "    return Kind.A\n",
        "make(setting)",
    ),
    "simple namespace": (
        "import helper, types\n",
        "types.SimpleNamespace(step=helper.turn, by=setting)",
    ),
    "mapping proxy": (
        "import helper, types\n",
        "types.MappingProxyType({'step': helper.turn, 'by': setting})",
    ),
    "itemgetter": ("import helper, operator\n", "[helper.turn, operator.itemgetter(setting)]"),
    "regular expression": ("import helper, re\n", "[helper.turn, re.compile('a' * setting)]"),
    "fraction and date": (
        "import helper, fractions, datetime\n",
        "[helper.turn, fractions.Fraction(1, setting), datetime.date(2000, 1, setting)]",
    ),
    "random generator": (
        "import helper, numpy\n",
        "[helper.turn, numpy.random.default_rng(setting)]",
    ),
    "weak reference": (
        "import helper, weakref\nKEPT = []\ndef make(by):\n    KEPT.append(helper.Turn(by))\n"
        "    return weakref.ref(KEPT[-1])\n",
        "make(setting)",
    ),
    "cycle": (
        "import helper\nclass Held:\n    pass\ndef make(by):\n    a, b = Held(), Held()\n"
        "    a.b, b.a = b, a\n"
        "    b.step = helper.Turn(by)\n    return a\n",
        "make(setting)",
    ),
    "code without a file": (
        "import helper\ndef make(by):\n    space = {'step': helper.turn}\n"
        "    exec(f'def run(batch):\\n    return step(batch, {by})', space)\n"
        "    return space['run']\n",
        "make(setting)",
    ),
    "two functions of one name": (
        "import helper\ndef make(by):\n    one = lambda batch: helper.turn(batch)\n"
        "    two = lambda batch: helper.turn(batch) * 2\n    return one if by == 1 else two\n",
        "make(setting)",
    ),
    "number of a library": ("import helper, numpy\n", "[helper.turn, numpy.float32(setting)]"),
    "text of a subclass": (
        "import helper\nclass Name(str):\n    pass\n",
        "[helper.turn, Name('a' * setting)]",
    ),
    "order of steps": (
        "import helper\ndef a(batch):\n    return batch\n",
        "dict([('a', a), ('b', helper.turn)][::1 if setting == 1 else -1])",
    ),
}

_MADE = """
def by_global(value):
    global BY
    BY = value
    return run

def by_other(value):
    import helper
    helper.FACTOR = value
    return run

def by_class(value, name="Held"):
    Held.by = value
    return globals()[name]()

def made(setting):
    return {expression}
"""
_KEY = """
import json, sys
sys.path.insert(0, sys.argv[1])
from qbench.storage import followed_code
import importlib
found = {}
for name in sys.argv[2:]:
    sys.path[0] = f"{sys.argv[1]}/{name}"
    for module in ("joined", "helper"):
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    code = followed_code(importlib.import_module("joined").made(1))
    found[name] = [code.digest, code.unfollowed]
print(json.dumps(found))
"""


def _number(layout):
    return f"layout{list(LAYOUTS).index(layout)}"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a folder for each layout."""
    folder = tmp_path_factory.mktemp("layouts")
    for layout, (text, expression) in LAYOUTS.items():
        own = folder / _number(layout)
        own.mkdir()
        (own / "helper.py").write_text(HELPER.format(code=1))
        (own / "joined.py").write_text(text + _MADE.format(expression=expression))
    return folder


@pytest.fixture
def key(written, monkeypatch):
    """layout, its setting and the text of its helper's code → what is followed,
    from modules loaded anew.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def found(layout, setting=1, code=1):
        own = written / _number(layout)
        (own / "helper.py").write_text(HELPER.format(code=code))
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(own))
            for name in ("joined", "helper"):
                sys.modules.pop(name, None)
            importlib.invalidate_caches()
            try:
                return followed_code(importlib.import_module("joined").made(setting))
            finally:
                for name in ("joined", "helper"):
                    sys.modules.pop(name, None)

    return found


@pytest.mark.slow_but(12)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_step_and_another_setting_have_other_keys(layout, key):
    first = key(layout)
    assert first == key(layout)
    assert first.unfollowed == ()
    assert key(layout, code=-1).digest != first.digest
    assert key(layout, setting=2).digest != first.digest
    assert key(layout) == first


@pytest.mark.slow
def test_keys_are_the_same_in_other_processes(written):
    for layout in LAYOUTS:
        (written / _number(layout) / "helper.py").write_text(HELPER.format(code=1))
    names = [_number(layout) for layout in LAYOUTS]

    def keys(seed):
        command = [sys.executable, "-B", "-c", _KEY, str(written), *names]
        done = subprocess.run(
            command, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}, check=True
        )
        return json.loads(done.stdout)

    first = keys("1")
    assert len({digest for digest, _ in first.values()}) == len(LAYOUTS)
    assert keys("2") == first == keys("3")


UNFOLLOWED = {
    "open file": "importlib.import_module('sys').__stdout__",
    "generator": "(i for i in range(3))",
    "computed import": "computed",
    "computed import of a path": "by_path",
    "computed text": "computed_text",
    "object of a C library": "__import__('hashlib').sha256()",
    "ufunc of a function": "__import__('numpy').frompyfunc(abs, 1, 1)",
    "computed import under another name": "renamed",
    "computed importorskip": "skipping",
}


@pytest.mark.parametrize("what", UNFOLLOWED)
def test_what_cannot_be_followed_is_named(what, tmp_path, monkeypatch):
    texts = {
        "computed": "def computed(name):\n    return importlib.import_module(name)\n",
        "by_path": "def by_path(p):\n    return importlib.util.spec_from_file_location('x', p)\n",
        "renamed": "from importlib import import_module as load\ndef renamed(a):\n"
        "    return load(a)\n",
        "skipping": "import pytest\ndef skipping(a):\n    return pytest.importorskip(a)\n",
        "computed_text": "def computed_text(text):\n    return eval(text)\n",
    }
    held = "class Held:\n    def __init__(self, value):\n        self.value = value\n"
    made = f"made = Held([{UNFOLLOWED[what]}])\n"
    text = "import importlib, importlib.util\n" + held + texts.get(UNFOLLOWED[what], "") + made
    (tmp_path / "opaque.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        assert len(followed_code(importlib.import_module("opaque").made).unfollowed) == 1
    finally:
        sys.modules.pop("opaque")


# What changes besides code and settings: (the module, the expression of the value, a change of it
# in the folder).
#
# A stranger adds a row. The key is another after the change, or it says what it cannot follow.


def _many(folder):
    (folder / "many").mkdir(exist_ok=True)
    for number in range(2_100):
        (folder / "many" / f"{number}.bin").write_bytes(b"1")


HELD = (
    "import os\nfrom pathlib import Path\nHERE = Path(__file__).parent\nDATA = HERE / 'data'\n"
    + OBJECT
)
PATHS = "[str(HERE / 'many' / f'{i}.bin') for i in range(2_100)]"


def change_variable(folder, monkeypatch):
    monkeypatch.setenv("QBENCH_TRIED", "2")


def remove_variable(folder, monkeypatch):
    monkeypatch.delenv("QBENCH_TRIED")


def change_last_of_many(folder, monkeypatch):
    (folder / "many" / "2099.bin").write_bytes(b"22")


def change_file(folder, monkeypatch):
    (folder / "data" / "deep" / "a.bin").write_bytes(b"22")


def add_file(folder, monkeypatch):
    (folder / "data" / "b.bin").write_bytes(b"1")


CHANGES = {
    "os.environ[]": (
        "import os\ndef made():\n    return float(os.environ['QBENCH_TRIED'])\n",
        "made",
        change_variable,
    ),
    "os.environ.get": (
        "import os\ndef made():\n    return os.environ.get('QBENCH_TRIED', 1)\n",
        "made",
        change_variable,
    ),
    "os.getenv": (
        "import os\ndef made():\n    return os.getenv('QBENCH_TRIED')\n",
        "made",
        change_variable,
    ),
    "in os.environ": (
        "import os\ndef made():\n    return (\n        'QBENCH_TRIED' in os.environ\n    )\n",
        "made",
        remove_variable,
    ),
    "from os import environ": (
        "from os import environ\ndef made():\n    return environ['QBENCH_TRIED']\n",
        "made",
        change_variable,
    ),
    "from os import getenv in a function": (
        "def made():\n    from os import getenv\n    return getenv('QBENCH_TRIED')\n",
        "made",
        change_variable,
    ),
    "variable in a method": (
        "import os\nclass Held:\n    def run(self):\n"
        "        return [lambda: os.environ['QBENCH_TRIED']]\n",
        "Held()",
        change_variable,
    ),
    "variable in a helper": (
        "import os\ndef by():\n    return os.environ['QBENCH_TRIED']\ndef made():\n"
        "    return by()\n",
        "made",
        change_variable,
    ),
    "thousands of paths": (HELD, f"Held([Path(one) for one in {PATHS}])", change_last_of_many),
    "thousands of texts": (HELD, f"Held({PATHS})", change_last_of_many),
    "thousands of texts in tuples": (
        HELD,
        f"Held([(one, 1) for one in {PATHS}])",
        change_last_of_many,
    ),
    "20 texts": (HELD, f"Held({PATHS}[-20:])", change_last_of_many),
    "folder": (HELD, "Held(DATA)", change_file),
    "folder in a text": (HELD, "Held(str(DATA))", change_file),
    "folder with another file": (HELD, "Held(DATA)", add_file),
    "folder in a global": (
        HELD + "def made():\n    return sorted(DATA.iterdir())\n",
        "made",
        add_file,
    ),
    "folder in a constant": (HELD + "def made():\n    return open('data/')\n", "made", add_file),
}


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """A text and an expression → what is followed of its value, again and again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("QBENCH_TRIED", "1")
    (tmp_path / "helper.py").write_text(HELPER.format(code=1))
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.bin").write_bytes(b"1")

    def found(text, expression):
        (tmp_path / "changing.py").write_text(f"{text}value = {expression}\n")
        importlib.invalidate_caches()
        try:
            return followed_code(importlib.import_module("changing").value)
        finally:
            for name in ("changing", "helper"):
                sys.modules.pop(name, None)

    return found


@pytest.mark.slow_but(5)
@pytest.mark.parametrize("what", CHANGES)
def test_what_a_result_depends_on_is_followed(what, followed, tmp_path, monkeypatch):
    text, expression, change = CHANGES[what]
    if change is change_last_of_many:
        _many(tmp_path)
    before = followed(text, expression)
    assert followed(text, expression) == before
    assert before.unfollowed == ()
    change(tmp_path, monkeypatch)
    assert followed(text, expression).digest != before.digest


OPAQUE = {
    "variable of a computed name": (
        "import os\ndef made(name):\n    return os.environ[name]\n",
        "made",
    ),
    "copy of a copy": ("import os\ndef made():\n    return {**os.environ}\n", "made"),
    "code without a file": (
        "import os\nspace = {'os': os, '__name__': 'changing'}\n"
        "exec('def run():\\n    return os.environ[1]', space)\n",
        "space['run']",
    ),
    "getenv of a computed name": (
        "import os\ndef made(name):\n    return os.getenv('A' + name)\n",
        "made",
    ),
    "copy of the environment": ("import os\ndef made():\n    return dict(os.environ)\n", "made"),
    "environment in a variable": (
        "import os\ndef made(a):\n    b = os.environ\n    return b['A']\n",
        "made",
    ),
    "environment under another name": (
        "from os import environ as E\ndef made():\n    return E['A']\n",
        "made",
    ),
    "getenv under another name": (
        "from os import getenv as g\ndef made():\n    return g('A')\n",
        "made",
    ),
    "in a function under another name": (
        "def made():\n    from os import environ as E\n    return E['A']\n",
        "made",
    ),
    "environment by a text": (
        "import os\ndef made():\n    return getattr(os, 'environ')\n",
        "made",
    ),
    "expanded variables": ("import os\ndef made():\n    return os.path.expandvars('$A')\n", "made"),
    "environment in an attribute": ("import os\n" + OBJECT, "Held(os.environ)"),
}


@pytest.mark.parametrize("what", OPAQUE)
def test_an_environment_that_cannot_be_followed_is_named(what, followed):
    found = followed(*OPAQUE[what])
    assert len(found.unfollowed) == 1
    assert "environ" in found.unfollowed[0]


def test_a_folder_of_very_many_files_is_not_followed(followed, monkeypatch):
    monkeypatch.setattr(held_code, "_MOST_IN_FOLDER", 0)
    (reason,) = followed(HELD, "Held(DATA)").unfollowed
    assert "which has more than" in reason


def test_very_many_texts_that_may_be_paths_are_not_followed(followed, monkeypatch):
    monkeypatch.setattr(held_code, "_MOST_PATHS", 10)
    (reason,) = followed(OBJECT, "Held([f'a/{i}' for i in range(40)])").unfollowed
    assert "may be paths" in reason


def test_a_folder_of_code_is_known_by_what_code_names_in_it(followed, tmp_path):
    before = followed(HELD, "Held(HERE)")
    (tmp_path / "results.txt").write_text("a run wrote this")
    assert followed(HELD, "Held(HERE)") == before


def test_locks_loggers_and_what_is_computed_once_are_no_part_of_a_key():
    class Held:
        def __init__(self):
            self.lock = threading.Lock()

        @functools.cached_property
        def table(self):
            return [1, 2]

    one = Held()
    before = followed_code(one)
    assert one.table == [1, 2]
    assert followed_code(one) == before
    assert before.unfollowed == ()


def test_a_file_that_is_named_is_part_of_the_key(tmp_path):
    table = tmp_path / "table.npy"

    class Held:
        def __init__(self, path):
            self.path = path

    for path in (table, str(table)):
        table.write_bytes(b"one")
        before = digest_code(Held(path))
        table.write_bytes(b"two")
        assert digest_code(Held(path)) != before


def test_a_file_next_to_the_module_that_a_constant_names_is_part_of_the_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "reads_table.py").write_text(
        "from pathlib import Path\nHERE = Path(__file__).parent\n"
        "def run(b):\n    return b + (HERE / 'table.npy').stat()\n"
    )
    run = importlib.import_module("reads_table").run
    found = set()
    for text in ("one", "two"):
        (tmp_path / "table.npy").write_text(text)
        found.add(digest_code(run))
    sys.modules.pop("reads_table")
    assert len(found) == 2


def test_a_chain_of_thousands_is_bounded():
    class Node:
        other = None

    first = node = Node()
    for _ in range(5000):
        node.other = Node()
        node = node.other
    assert len(followed_code(first).unfollowed) == 1


def test_a_task_that_keeps_its_answers_has_the_key_of_the_task():
    class Task:
        name = "task"

    task = Task()
    recording = RecordingTask(task)
    recording.last = [1, 2, 3]
    assert digest_code(recording) == digest_code(RecordingTask(task))
    assert digest_code([recording]) == digest_code([RecordingTask(task)])


def test_large_arrays_are_known_by_their_numbers():
    arrays = [np.arange(1 << 20, dtype=np.float32).reshape(64, -1) for _ in range(2)]
    assert digest_code(arrays[0]) == digest_code(arrays[1])
    assert digest_code(arrays[0].reshape(128, -1)) != digest_code(arrays[0])


def test_slices_of_a_mapped_file_are_told_apart(tmp_path):
    np.save(tmp_path / "samples.npy", np.arange(2000.0))
    mapped = np.load(tmp_path / "samples.npy", mmap_mode="r")
    parts = (mapped, mapped[:500], mapped[500:1000], mapped[::2][:500])
    assert len({digest_code(part) for part in parts}) == len(parts)


def test_a_large_array_that_is_changed_in_place_is_another():
    held = np.zeros(1 << 18)
    before = digest_code(held)
    held += 1
    assert digest_code(held) != before
