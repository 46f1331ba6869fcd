"""A pickle read as text before any of it is run: it is a program, and most of its instructions are not needed here.

Whoever unpickles afterwards knows the same names alone, as inert values of ours.
"""

import io
import pickle
import pickletools
from collections.abc import Container
from typing import BinaryIO

# What pickles of plain values, tensors, arrays and persistent ids need, up to protocol 3. Absent on purpose: every
# instruction that calls or finds something by another road (INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT*).
_INSTRUCTIONS = frozenset(
    {
        *("PROTO", "STOP", "MARK", "POP", "POP_MARK", "DUP", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
        *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
        *("EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
        *("SHORT_BINBYTES", "BINBYTES"),
    }
)

_MOST_TUPLES = 30_000
"""A tensor needs five. Python hashes tuples in tuples by unguarded recursion: a million deep ends the process."""


def inspect_pickle(stream: BinaryIO, names: Container[tuple[str, str]]) -> None:
    """Refuse the pickle at the position of ``stream``, which stays there, unless it is made of known parts.

    Args:
        stream: can be sought in. names: (module, name) of all that it may look up.

    Raises:
        pickle.UnpicklingError: an instruction or a name that is on no list, or too many tuples.
        EOFError: nothing is there.
    """
    start = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    stream.seek(start)
    if start == size:
        raise EOFError
    tuples = 0
    for instruction, argument, _ in pickletools.genops(stream):
        if instruction.name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"the pickle instruction {instruction.name}")
        if instruction.name == "GLOBAL":
            module, _, title = str(argument).partition(" ")
            if (module, title) not in names:
                raise pickle.UnpicklingError(f"the name '{module}.{title}'")
        tuples += instruction.name.startswith("TUPLE")
        if tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError(f"more than {_MOST_TUPLES} tuples")
        # The memo is an array as long as its largest index: one short instruction could claim all memory.
        if instruction.name in ("BINPUT", "LONG_BINPUT") and int(argument or 0) > size:
            raise pickle.UnpicklingError(f"the memo index {argument}")
    stream.seek(start)
