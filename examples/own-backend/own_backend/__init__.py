"""What this package adds to qbench: a backend, made when its name is used."""

from qbench import Extension


def toy_npu():
    from own_backend.engine import ToyNpu

    return ToyNpu()


EXTENSION = Extension(name="own-backend", backends={"toy-npu": toy_npu})
