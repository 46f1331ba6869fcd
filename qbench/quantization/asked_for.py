"""What planning is asked for, by name or as it is: a schema, the limits of a backend, a profile or none."""

from qbench.backends import get_backend
from qbench.calibration import Profile
from qbench.errors import InputError
from qbench.graph import Capabilities
from qbench.quantization.named import get_schema
from qbench.quantization.schema import Schema


def as_schema(schema: object) -> Schema:
    """``schema``, or the one of that name.

    Raises:
        InputError: there is none, or it is neither.
    """
    if isinstance(schema, str):
        return get_schema(schema)
    if not isinstance(schema, Schema):
        raise InputError(
            "Making a plan",
            found=f"{schema!r} for a schema",
            expected="a Schema, or the name of one",
            remedy="Name one, as in 'w8a8_asym_pc', or read one with load_schema.",
        )
    return schema


def as_capabilities(capabilities: object) -> Capabilities | None:
    """``capabilities``, or those of the backend of that name.

    Raises:
        InputError: there is no such backend, or it is neither.
    """
    if capabilities is None or isinstance(capabilities, Capabilities):
        return capabilities
    if not isinstance(capabilities, str):
        raise InputError(
            "Making a plan",
            found=f"something of type {type(capabilities).__name__} for the limits of a backend",
            expected="Capabilities, or the name of a backend",
            remedy="Give backend.capabilities, or its name, as in 'ort-cpu'.",
        )
    return get_backend(capabilities).capabilities


def as_profile(profile: object, schema: Schema, graph: str) -> Profile:
    """``profile``, or where ``schema`` needs none, one of nothing about the graph of that digest.

    Raises:
        InputError: none is given and one is needed, or it is no profile.
    """
    if isinstance(profile, Profile):
        return profile
    found = "no profile" if profile is None else f"something of type {type(profile).__name__} for a profile"
    if profile is None and not schema.needs_profile:
        return Profile(graph, {}, 0, {})
    raise InputError(
        f"Making a plan under '{schema.name}'",
        found=found,
        expected="a Profile: this schema takes ranges from statistics",
        remedy="Make one with calibrate, or load one with Profile.load.",
    )
