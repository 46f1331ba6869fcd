"""RNN, GRU and LSTM of every version, direction, length, activation, clip and layout.

One step of a direction, with gates of H rows each and biases W_b, R_b (zeros where B is left out):

    RNN    h' = f(x Wᵀ + h Rᵀ + W_b + R_b)
    GRU    z, r = f(x Wᵀ + h Rᵀ + W_b + R_b)                                 gates z r h
           ĥ = g(x W_hᵀ + (r ⊙ h) R_hᵀ + R_bh + W_bh)                        linear_before_reset = 0
           ĥ = g(x W_hᵀ + r ⊙ (h R_hᵀ + R_bh) + W_bh)                        linear_before_reset = 1
           h' = (1 − z) ⊙ ĥ + z ⊙ h
    LSTM   i, f, o with peepholes P; c' = f ⊙ c + i ⊙ g(·);  h' = o ⊙ h(c')  gates i o f c

A sequence that is over leaves its state as it is, and 0 in Y; ``reverse`` turns each sequence round
within its length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.call import Call, Inputs, Results, given, needed

Activation = Callable[[Array], Array]
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}
SUPPORTED_ACTIVATIONS = frozenset(_ACTIVATIONS)
"""In lower case; others have parameters, or hardly any user."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One direction: its weights, functions and options."""

    operator: str
    weight: Array
    recurrence: Array
    bias_of_input: Array
    bias_of_state: Array
    peepholes: Sequence[Array]
    functions: Sequence[Activation]
    clip: float | None
    reset_behind: bool

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """The next state and cell."""
        size = h.shape[1]
        if self.operator == "GRU":
            return self._gru(x, h, size), c
        sums = x @ self.weight.T + h @ self.recurrence.T + self.bias_of_input + self.bias_of_state
        if self.operator == "RNN":
            return self.functions[0](self._clipped(sums)), c
        i, o, f, cell = (sums[:, k * size : (k + 1) * size] for k in range(4))
        of_i, of_o, of_f = self.peepholes
        first, second, third = self.functions
        i, f = (
            first(self._clipped(gate + c * peephole)) for gate, peephole in ((i, of_i), (f, of_f))
        )
        new = f * c + i * second(self._clipped(cell))
        return first(self._clipped(o + new * of_o)) * third(self._clipped(new)), new

    def _gru(self, x: Array, h: Array, size: int) -> Array:
        by_input = x @ self.weight.T + self.bias_of_input
        gates, hidden = slice(0, 2 * size), slice(2 * size, None)
        sums = by_input[:, gates] + h @ self.recurrence[gates].T + self.bias_of_state[gates]
        both = self.functions[0](self._clipped(sums))
        z, r = both[:, :size], both[:, size:]
        if self.reset_behind:
            by_state = r * (h @ self.recurrence[hidden].T + self.bias_of_state[hidden])
        else:
            by_state = (r * h) @ self.recurrence[hidden].T + self.bias_of_state[hidden]
        new = self.functions[1](self._clipped(by_input[:, hidden] + by_state))
        return np.asarray((1 - z) * new + z * h)

    def _clipped(self, x: Array) -> Array:
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)


def recurrent(call: Call, inputs: Inputs) -> Results:
    """RNN, GRU or LSTM: Y (T, directions, N, H), Y_h and of an LSTM Y_c (directions, N, H);
    batch first by layout 1.
    """
    swapped = bool(call.attributes.get("layout"))
    x = needed(inputs, 0)
    x = x.swapaxes(0, 1) if swapped else x
    ways = _ways(call, inputs)
    steps, batch, size = x.shape[0], x.shape[1], ways[0].recurrence.shape[1]
    lengths = given(inputs, 4)
    lengths = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
    direction = call.attributes["direction"] or "forward"
    results, states, cells = np.zeros((steps, len(ways), batch, size), x.dtype), [], []
    for index, way in enumerate(ways):
        starts = [
            _start(given(inputs, place), index, (batch, size), x, swapped=swapped)
            for place in (5, 6)
        ]
        is_reversed = direction == "reverse" or index == 1
        results[:, index], h, c = _through(
            way, _turned(x, lengths) if is_reversed else x, lengths, *starts
        )
        if is_reversed:
            results[:, index] = _turned(results[:, index], lengths)
        states.append(h)
        cells.append(c)
    last = [np.stack(states), *([np.stack(cells)] if call.operator == "LSTM" else [])]
    if swapped:
        return (results.transpose(2, 0, 1, 3), *(array.swapaxes(0, 1) for array in last))
    return (results, *last)


def _through(way: _Way, x: Array, lengths: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    found = np.zeros((len(x), *h.shape), x.dtype)
    for t in range(len(x)):
        new_h, new_c = way.step(x[t], h, c)
        runs = (t < lengths)[:, None]
        h, c = np.where(runs, new_h, h).astype(x.dtype), np.where(runs, new_c, c).astype(x.dtype)
        found[t] = np.where(runs, h, 0)
    return found, h, c


def _turned(x: Array, lengths: Array) -> Array:
    """Each sequence of (T, N, …) backwards within its length; what lies behind it stays."""
    times = np.arange(len(x))[:, None]
    places = np.where(times < lengths, lengths - 1 - times, times)
    return x[places, np.arange(x.shape[1])]


def _start(
    state: Array | None, index: int, shape: tuple[int, int], x: Array, *, swapped: bool
) -> Array:
    if state is None:
        return np.zeros(shape, x.dtype)
    return state[:, index] if swapped else state[index]


def _ways(call: Call, inputs: Inputs) -> list[_Way]:
    weight = needed(inputs, 1)
    recurrence = needed(inputs, 2)
    bias = given(inputs, 3)
    peepholes = given(inputs, 7)
    names = call.attributes.get("activations") or _DEFAULTS[call.operator] * len(weight)
    each, size = len(_DEFAULTS[call.operator]), recurrence.shape[2]
    rows, clip = _GATES[call.operator] * size, call.attributes.get("clip")
    found = []
    for index in range(len(weight)):
        both = np.zeros(2 * rows, weight.dtype) if bias is None else bias[index]
        looks = np.zeros(3 * size, weight.dtype) if peepholes is None else peepholes[index]
        found.append(
            _Way(
                call.operator,
                weight[index],
                recurrence[index],
                both[:rows],
                both[rows:],
                [looks[k * size : (k + 1) * size] for k in range(3)],
                [_ACTIVATIONS[name.lower()] for name in names[index * each : (index + 1) * each]],
                None if clip is None else float(clip),
                bool(call.attributes.get("linear_before_reset")),
            )
        )
    return found
