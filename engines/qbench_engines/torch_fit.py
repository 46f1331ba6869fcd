"""Fitting by gradient descent: thresholds (TQT) or scales (LSQ) of a whole network, weights too
where they shall, by labels or towards the results of the float network.

Loss: cross entropy with labels; else KL(softmax(float) ‖ softmax(quantized)) of rows of scores, and
the squared error over the variance of the float results for anything else.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from qbench.errors import InputError
from qbench.graph import FitJob, FitSettings, Fitted, fixed_batch
from qbench.working import working
from qbench_engines.torch_fake_quantize import FakeQuantizer
from qbench_engines.torch_simulation import Simulation

Tensor = Any

_OCTAVES = 6.0
"""How far log₂ of a threshold can move in all steps, were they of one size; they shrink to half of
that. TQT has 0.01 a step for many thousands of steps.
"""
_RELATIVE = 0.6
"""The same of a real scale, relative to it."""
_LARGEST = 0.05
"""Of log₂ of a threshold, a step: with few steps it moves less far."""
_LEAST = np.float32(64.0)
"""How much smaller a scale can get, so that it stays positive."""
_POINTS = 64.0
"""Codes that a zero point moves while a scale moves by itself."""
_WEIGHT_RATE = 1e-4
_LOOKS = 4
"""How often the loss of all samples is taken."""
_MEMORY = 0.9
"""Of the running means that freezing looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFitter:
    """TQT or LSQ.

    Args:
        method: ``tqt``: thresholds, with scales that are powers of two; ``lsq``: scales.
    """

    method: str

    def fit(self, job: FitJob) -> Fitted:
        """As ``graph.Fitter``. What has the least loss of all samples counts.

        Raises:
            InputError: TQT of scales that are no powers of two, or nothing that can change.
            UnsupportedError: an operator that has no translation.
        """
        self._check(job)
        with deterministic(job.settings):
            simulation = Simulation(job.task, lsq=self.method == "lsq")
            return _Descent(simulation, Examples.of(simulation, job), job.settings).run()

    def _check(self, job: FitJob) -> None:
        moving = job.task.moving
        real = [name for name, one in moving.items() if not one.pow2]
        found = ""
        if not moving:
            found = "no quantization parameters that can change"
        elif self.method == "tqt" and real:
            found = f"real scales, of '{real[0]}'"
        if found:
            raise InputError(
                f"{job.doing} by {self.method}",
                found=found,
                expected="scales that are powers of two" if moving else "a quantized value",
                remedy="Choose a schema with _pow2 in its name, or the method lsq.",
            )


@contextmanager
def deterministic(settings: FitSettings) -> Iterator[None]:
    """Inside the block PyTorch has these threads and this seed. Its kernels for a processor that
    are used here sum in one order for one number of threads.
    """
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Samples in the order of the graph's inputs, and what is aimed at.

    Args:
        inputs: a tensor for each graph input, samples along the first axis.
        aims: the results of the float graph, by output.
        labels: the class of each sample; None: the aims count.
        batch: samples of a step.
    """

    inputs: list[Tensor]
    aims: dict[str, Tensor]
    labels: Tensor | None
    batch: int

    @classmethod
    def of(cls, simulation: Simulation, job: FitJob) -> "Examples":
        """Those of ``job``.

        Raises:
            InputError: other inputs than the graph's, or labels of other samples.
        """
        model, feeds, labels = job.task.model, job.feeds, job.labels
        names = [value.name or "" for value in model.graph.inputs]
        counts = {len(one) for one in feeds.values()}
        if set(names) != set(feeds) or len(counts) != 1:
            raise InputError(
                job.doing,
                found=f"samples of {', '.join(feeds) or 'nothing'}",
                expected=f"as many of each of the inputs {', '.join(names)}",
                remedy="Give the calibration samples of this model.",
            )
        (count,) = counts
        if labels is not None and (labels.ndim != 1 or len(labels) != count):
            raise InputError(
                f"{job.doing} by labels",
                found=f"labels of shape {labels.shape} for {count} samples",
                expected="a class for each sample",
                remedy="Give labelled samples, or leave --labels out.",
            )
        inputs = [torch.from_numpy(np.array(feeds[name])) for name in names]
        batch = fixed_batch(model) or min(job.settings.batch, count)
        known = None if labels is None else torch.from_numpy(np.asarray(labels, np.int64))
        simulation.switch(on=False)
        found = cls(inputs, {}, known, batch)
        found.aims.update(found.results(simulation))
        simulation.switch(on=True)
        return found

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.inputs[0])

    def results(self, simulation: Simulation) -> dict[str, Tensor]:
        """What ``simulation`` gives for all samples."""
        parts: dict[str, list[Tensor]] = {}
        with torch.no_grad():
            for begin in range(0, self.count - self.batch + 1, self.batch):
                cut = [one[begin : begin + self.batch] for one in self.inputs]
                for name, one in simulation.outputs(cut).items():
                    parts.setdefault(name, []).append(one)
        return {name: torch.cat(each) for name, each in parts.items()}

    def loss(self, results: Mapping[str, Tensor], chosen: Tensor) -> Tensor:
        """The loss of ``results`` of the samples ``chosen``."""
        if self.labels is not None:
            return functional.cross_entropy(next(iter(results.values())), self.labels[chosen])
        return sum(_distance(one, self.aims[name][chosen]) for name, one in results.items())

    def whole_loss(self, simulation: Simulation) -> float:
        """The loss of all samples."""
        results = self.results(simulation)
        count = len(next(iter(results.values())))
        return float(self.loss(results, torch.arange(count)))


def _distance(found: Tensor, aim: Tensor) -> Tensor:
    """How far ``found`` is from the float results."""
    if aim.dim() == 2 and aim.shape[1] > 1:
        scores = torch.log_softmax(found, 1)
        return functional.kl_div(scores, torch.softmax(aim, 1), reduction="batchmean")
    return functional.mse_loss(found, aim) / torch.clamp(aim.var(), min=1e-12)


class _Descent:
    """One run of gradient descent."""

    def __init__(self, simulation: Simulation, samples: Examples, settings: FitSettings) -> None:
        self._simulation, self._samples, self._settings = simulation, samples, settings
        self._quantizers = list(simulation.learned())
        weights = list(simulation.weights.values()) if settings.weights else []
        for weight in weights:
            weight.requires_grad_(True)
        groups: list[dict[str, Any]] = []
        for quantizer in self._quantizers:
            groups += _groups(quantizer, settings)
        groups += [{"params": weights, "lr": _WEIGHT_RATE}] * bool(weights)
        self._optimizer = torch.optim.Adam(groups)
        self._freezing = _Freezing(self._quantizers, settings)

    def run(self) -> Fitted:
        """All steps. The best of the beginning and of each quarter counts, by the loss of all
        samples.
        """
        settings, simulation = self._settings, self._simulation
        before = best = self._samples.whole_loss(simulation)
        kept = self._state()
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self._optimizer, max(settings.steps, 1), eta_min=0.0
        )
        looks = {math.ceil(settings.steps * part / _LOOKS) for part in range(1, _LOOKS + 1)}
        for step in range(settings.steps):
            with working(f"step {step + 1} of {settings.steps}"):
                self._step(self._drawn())
            self._freezing.after(step)
            schedule.step()
            if step + 1 in looks:
                found = self._samples.whole_loss(simulation)
                best, kept = (found, self._state()) if found < best else (best, kept)
        self._restore(kept)
        is_changed = settings.weights and best < before
        return Fitted(
            qparams={name: simulation.quantizers[name].result() for name in simulation.task.moving},
            constants=simulation.constants() if is_changed else {},
            losses=(before, best),
        )

    def _step(self, chosen: Tensor) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        results = self._simulation.outputs([one[chosen] for one in self._samples.inputs])
        self._samples.loss(results, chosen).backward()
        self._freezing.before_step()
        self._optimizer.step()
        with torch.no_grad():
            for quantizer in self._quantizers:
                if not quantizer.pow2:  # a scale is positive
                    quantizer.raw.clamp_(
                        min=torch.from_numpy(np.asarray(quantizer.qparams.scale / _LEAST))
                    )

    def _drawn(self) -> Tensor:
        return torch.randperm(self._samples.count)[: self._samples.batch]

    def _state(self) -> list[Tensor]:
        return [one.detach().clone() for one in self._parameters()]

    def _restore(self, state: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for one, kept in zip(self._parameters(), state, strict=True):
                one.copy_(kept)

    def _parameters(self) -> list[Tensor]:
        each = [one for quantizer in self._quantizers for one in (quantizer.raw, quantizer.point)]
        return [*each, *self._simulation.weights.values()]


def _groups(quantizer: FakeQuantizer, settings: FitSettings) -> list[dict[str, Any]]:
    """The parameters of ``quantizer`` and their step sizes."""
    steps = max(settings.steps, 1)
    if quantizer.pow2:
        return [{"params": [quantizer.raw], "lr": settings.rate or min(_OCTAVES / steps, _LARGEST)}]
    relative = settings.rate or _RELATIVE / steps
    groups = [{"params": [quantizer.raw], "lr": relative * float(np.mean(quantizer.qparams.scale))}]
    if quantizer.point.requires_grad:
        groups.append({"params": [quantizer.point], "lr": relative * _POINTS})
    return groups


class _Freezing:
    """Thresholds that are frozen one by one, so that none jumps between two powers of two at the
    end (TQT, section 5.2).

    From the step ``freeze`` · steps on, the threshold with the smallest running gradient stops,
    where its power of two is that of its running mean.
    """

    def __init__(self, quantizers: Sequence[FakeQuantizer], settings: FitSettings) -> None:
        self._quantizers = [quantizer for quantizer in quantizers if quantizer.pow2]
        self._first = math.ceil(settings.freeze * settings.steps)
        left = max(settings.steps - self._first, 1)
        self._at_once = math.ceil(len(self._quantizers) / max(0.8 * left, 1))
        self._frozen: set[int] = set()
        self._means = [quantizer.raw.detach().clone() for quantizer in self._quantizers]
        self._gradients = [0.0] * len(self._quantizers)

    def before_step(self) -> None:
        """Keep what is frozen where it is."""
        for index, quantizer in enumerate(self._quantizers):
            if index in self._frozen:
                quantizer.raw.grad = None
            elif quantizer.raw.grad is not None:
                size = float(quantizer.raw.grad.abs().mean())
                self._gradients[index] += (1 - _MEMORY) * (size - self._gradients[index])

    def after(self, step: int) -> None:
        """Update the means after ``step``, and freeze what is due."""
        for mean, quantizer in zip(self._means, self._quantizers, strict=True):
            mean.lerp_(quantizer.raw.detach(), 1 - _MEMORY)
        if step < self._first:
            return
        waiting = [one for one in range(len(self._quantizers)) if one not in self._frozen]
        settled = [one for one in waiting if self._is_settled(one)]
        order = sorted(settled, key=lambda one: (self._gradients[one], one))
        self._frozen.update(order[: self._at_once])

    def _is_settled(self, index: int) -> bool:
        raw = self._quantizers[index].raw.detach()
        return bool(torch.equal(torch.ceil(raw), torch.ceil(self._means[index])))
