"""What this package adds to qbench: a pass and a device, made when their names are used."""

from pathlib import Path

from qbench import Extension


def split_bias():
    from own_pass.split_bias import SplitBias

    return SplitBias()


def edge():
    from qbench.backends import device_backend

    return device_backend(Path(__file__).with_name("edge.toml"))


EXTENSION = Extension(
    name="own-pass", passes={"own-split-bias": split_bias}, backends={"partitioned-edge": edge}
)
