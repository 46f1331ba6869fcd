"""Modules of PyTorch as graphs, by PyTorch's own exporters.

    float; converted by PT2E (torchao)                  → torch.export, opset 21
    eager mode: nn.quantized, QuantStub and DeQuantStub → TorchScript's exporter, opset 17
    eager mode, prepared (observers, QAT)               → converted to nn.quantized first

``torch.export`` takes no quantized tensor, and neither exporter takes the fused operator by which
eager-mode QAT observes and rounds; a converted module holds the same scales.
"""

import copy
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from inspect import signature
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import nn

from qbench.errors import InputError, NotFetchedError, UnsupportedError
from qbench.extension import install_command

_OPSET, _SCRIPT_OPSET = 21, 17
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
"""Packages of modules that compute on quantized tensors."""
_GRAPH_MODES = (
    ("torchao.quantization.pt2e.", "prepare_pt2e", "convert_pt2e"),
    ("torch.ao.quantization.", "prepare_fx", "convert_fx"),
)
"""Package of the observers, what puts them into a traced module, and what converts it."""
_OPERATOR = re.compile(r"(?:OpOverload\(op='|operator '|operator: |operator )([\w.:]+)")
_LONGEST = 300


class TorchExporter:
    """Exports a ``torch.nn.Module``."""

    def export(self, module: object, example: object, doing: str) -> ir.Model:
        """As ``qbench.graph.ModuleExporter``."""
        assert isinstance(module, nn.Module)
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedError(
                doing,
                found="a module of TorchScript",
                expected="the module that it was made of: torch.export takes no other",
                remedy="Return that module, or export this one yourself and name the ONNX file.",
            )
        _refuse_observing_graph(module, doing)
        inputs = _named_inputs(module, example, doing)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            _refuse_observers_without_data(module, inputs, doing)
            try:
                return _written(module, inputs)
            except Exception as error:  # exporters raise whatever their steps raise
                raise _refused(error, doing) from error


def _written(module: nn.Module, inputs: Mapping[str, torch.Tensor]) -> ir.Model:
    if _is_prepared(module):
        module = torch.ao.quantization.convert(copy.deepcopy(module).eval())
    buffer = io.BytesIO()
    example, names = tuple(inputs.values()), list(inputs)
    is_eager = any(type(one).__module__.startswith(_QUANTIZED) for one in module.modules())
    settings: dict[str, Any] = {
        "dynamo": True,
        "opset_version": _OPSET,
        "dynamic_shapes": tuple({0: torch.export.Dim.AUTO} for _ in example),
        "external_data": False,
        "verbose": False,
    }
    if is_eager:
        axes = {name: {0: "n"} for name in (*names, "output")}
        settings = {"dynamo": False, "opset_version": _SCRIPT_OPSET, "dynamic_axes": axes}
        settings["output_names"] = ["output"]
    with suppress(NotImplementedError):  # those of PT2E refuse it, and are as they run
        module.eval()
    with _without_words():
        torch.onnx.export(module, example, buffer, input_names=names, **settings)
    return ir.from_proto(onnx.load_from_string(buffer.getvalue()))


@contextmanager
def _without_words() -> Iterator[None]:
    """Without what the exporter prints, and logs of the operators of packages that are missing."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.disabled = was_disabled


def _refuse_observing_graph(module: nn.Module, doing: str) -> None:
    """Check that ``module`` is no traced graph with observers, among them those of QAT.

    Raises:
        UnsupportedError: it is; what converts it is named.
    """
    if not isinstance(module, torch.fx.GraphModule):
        return
    packages = {type(one).__module__ for one in module.modules()}
    for package, prepare, convert in _GRAPH_MODES:
        if any(one.startswith(package) for one in packages):
            raise UnsupportedError(
                doing,
                found=f"a module of {prepare} that still observes",
                expected=f"the module that {convert} makes of it",
                remedy=f"Calibrate or train it, then call {convert} and return what that gives.",
            )


def _is_prepared(module: nn.Module) -> bool:
    """Whether it has observers of eager mode, among them those of QAT."""
    observing = (torch.ao.quantization.ObserverBase, torch.ao.quantization.FakeQuantizeBase)
    return any(isinstance(one, observing) for one in module.modules())


def _refuse_observers_without_data(
    module: nn.Module, inputs: Mapping[str, torch.Tensor], doing: str
) -> None:
    """Check that every observer that ``inputs`` reach has seen data: without it PyTorch converts
    to scale 1.

    Raises:
        UnsupportedError: one has not.
    """
    if not any(_lacks_data(one) for one in module.modules()):
        return
    run = copy.deepcopy(module).eval()
    reached: list[str] = []
    for name, one in run.named_modules():
        if _lacks_data(one):
            one.register_forward_pre_hook(lambda *_, name=name: reached.append(name))
    with suppress(Exception):  # what the module raises is said where it is exported
        run(*inputs.values())
    if reached:
        raise UnsupportedError(
            doing,
            found=f"a prepared module whose observer '{reached[0]}' has seen no data",
            expected="ranges in every observer: without data the scale is 1",
            remedy="Run calibration samples through it first, then return it.",
        )


def _lacks_data(module: nn.Module) -> bool:
    """Whether it is an observer of ranges, not of each batch anew, that holds none; of QAT it is
    inside what rounds, which may run without calling it.
    """
    if isinstance(module, torch.ao.quantization.FakeQuantizeBase):
        module = getattr(module, "activation_post_process", module)
    if not isinstance(module, torch.ao.quantization.ObserverBase):
        return False
    low = getattr(module, "min_val", None)
    if not isinstance(low, torch.Tensor) or getattr(module, "is_dynamic", False):
        return False
    return low.numel() == 0 or bool(torch.isinf(low).any())


def _named_inputs(module: nn.Module, example: object, doing: str) -> dict[str, torch.Tensor]:
    """Argument of ``forward`` → tensor of at least two samples: the exporter takes an axis of
    size 1 for a fixed one.

    Raises:
        InputError: they are no tensors, or too many.
    """
    arguments = list(signature(module.forward).parameters)
    named = _by_argument(arguments, example)
    if not named or not all(isinstance(one, torch.Tensor) and one.ndim for one in named.values()):
        raise InputError(
            doing,
            found=f"example inputs of type {type(example).__name__}",
            expected=f"tensors with samples along axis 0 for {', '.join(arguments)}",
            remedy="Let the function return (module, (tensor, …)).",
        )
    return {name: one if len(one) > 1 else torch.cat([one, one]) for name, one in named.items()}


def _by_argument(arguments: Sequence[str], example: object) -> dict[str, Any]:
    """Argument → example, in the order of ``arguments``; empty where they do not fit: the exporter
    passes examples by position, so that none may be skipped.
    """
    if isinstance(example, Mapping):
        named = {name: example[name] for name in arguments if name in example}
        is_leading = arguments[: len(named)] == list(named)
        return named if is_leading and len(named) == len(example) else {}
    each = [example] if isinstance(example, torch.Tensor) else example
    if not isinstance(each, Sequence) or len(each) > len(arguments):
        return {}
    return dict(zip(arguments, each, strict=False))


def _refused(error: Exception, doing: str) -> UnsupportedError | NotFetchedError:
    """The error of a module that is not exported: the package that is missing, or the operator,
    where one of the causes names it.
    """
    chain = list(_causes(error))
    for one in chain:
        if isinstance(one, ModuleNotFoundError) and one.name:
            return NotFetchedError(
                doing,
                found=f"that PyTorch's exporter needs the package '{one.name.partition('.')[0]}'",
                expected="it to be installed",
                remedy=f"Install what the exporter needs: {install_command('train')}; or that "
                "package.",
            )
    for one in chain:
        if match := _OPERATOR.search(str(one)):
            name = match[1].strip(".")
            return UnsupportedError(
                doing,
                found=f"the operator {name}, which PyTorch's exporter does not write",
                expected="operators that it has an ONNX form for",
                remedy="Replace it in the module, or export the module with a translation of your "
                "own (custom_translation_table of torch.onnx.export) and name that file.",
            )
    last = chain[-1]
    text = " ".join(str(last).split())[:_LONGEST]
    return UnsupportedError(
        doing,
        found=f"that PyTorch's exporter ended with {type(last).__name__}: {text}",
        expected="a module that torch.export takes",
        remedy="Change that place of the module, or export it yourself and name the ONNX file.",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error`` and what it was raised from, the first cause last."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
