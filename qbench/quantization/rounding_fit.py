"""The codes of one weight, chosen so that its products are nearest to those of the float weight.

    least  Σ_r e_r H e_rᵀ,   e = (q − z) · s − w,   H = E[x xᵀ]
    r a row of the weight (what one output sums over), x what the rows are multiplied with

Each row is a problem of its own, with the same H. Two steps, neither of which is random:

1. Codes are chosen column by column; the columns that are left take over what the rounding of the
   last one has cost, as their own values can make up for it. Columns with the largest H_jj come
   first. (Frantar et al., GPTQ, arXiv 2210.17323, section 3, with the order by activations; the
   update is that of Hassibi and Stork's Optimal Brain Surgeon.)
2. Columns are visited again in their order. Each takes the best code while all others stay, until
   nothing moves or ``PASSES`` are over. No such step makes the sum larger.

A row whose codes to the nearest cost less than those of step 1 goes into step 2 with these. So no
row of the result costs more than rounding to the nearest.
"""

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

PASSES = 3
"""How often all columns are visited again."""
_DAMPING = 0.01
"""Share of the mean of H's diagonal that is added to it: H is of few samples, and may be singular.
"""
_TOGETHER = 128
"""Columns after which the others are brought up to date, by one product of matrices."""


class RoundingProblem:
    """Rows of one weight with their qparams, and the second moments of what they meet.

    Args:
        weight: real, (groups, rows, columns).
        scale: positive, of that shape.
        zero_point: of that shape, whole.
        ends: lowest and highest code.
        moments: H, (groups, columns, columns), symmetric without negative eigenvalues.
    """

    def __init__(
        self,
        weight: Doubles,
        scale: Doubles,
        zero_point: Doubles,
        ends: tuple[int, int],
        moments: Doubles,
    ) -> None:
        self._weight, self._scale, self._point = weight, scale, zero_point
        self._ends, self._moments = ends, damped(moments)

    def nearest(self) -> Doubles:
        """The nearest code of every element: half to even."""
        return self._codes(self._weight, self._scale, self._point)

    def fitted(self) -> Doubles:
        """The codes of both steps; (groups, rows, columns)."""
        nearest, compensated = self.nearest(), self._compensated()
        is_better = self.cost(compensated) < self.cost(nearest)
        return self._descended(np.where(is_better[:, :, None], compensated, nearest))

    def cost(self, codes: Doubles) -> Doubles:
        """The sum of each row, with the damped H; (groups, rows)."""
        error = self._error(codes)
        return np.asarray(np.einsum("grk,grk->gr", error @ self._moments, error))

    def _codes(self, real: Doubles, scale: Doubles, point: Doubles) -> Doubles:
        return np.clip(np.rint(real / scale) + point, *self._ends)

    def _error(self, codes: Doubles) -> Doubles:
        return (codes - self._point) * self._scale - self._weight

    def _compensated(self) -> Doubles:
        """Step 1: the factor C of H⁻¹ = Cᵀ C, upper triangular, holds the updates of all steps."""
        order = np.argsort(-np.einsum("gkk->gk", self._moments), axis=1, kind="stable")
        left, scale, point = (
            np.take_along_axis(array, order[:, None, :], axis=2)
            for array in (self._weight, self._scale, self._point)
        )
        moments = np.take_along_axis(self._moments, order[:, :, None], axis=1)
        moments = np.take_along_axis(moments, order[:, None, :], axis=2)
        factor = np.swapaxes(np.linalg.cholesky(np.linalg.inv(moments)), 1, 2)
        codes = np.empty_like(left)
        for start in range(0, left.shape[2], _TOGETHER):
            stop = min(start + _TOGETHER, left.shape[2])
            errors = np.empty((*left.shape[:2], stop - start))
            for at in range(start, stop):
                real = left[:, :, at]
                chosen = self._codes(real, scale[:, :, at], point[:, :, at])
                off = real - (chosen - point[:, :, at]) * scale[:, :, at]
                errors[:, :, at - start] = off / factor[:, at, at, None]
                codes[:, :, at] = chosen
                update = errors[:, :, at - start, None] * factor[:, at, None, at:stop]
                left[:, :, at:stop] -= update
            left[:, :, stop:] -= errors @ factor[:, start:stop, stop:]
        found = np.empty_like(codes)
        np.put_along_axis(found, np.broadcast_to(order[:, None, :], codes.shape), codes, axis=2)
        return found

    def _descended(self, codes: Doubles) -> Doubles:
        """Step 2, from ``codes``, which are changed."""
        slopes = self._error(codes) @ self._moments
        curves = np.einsum("gkk->gk", self._moments)
        for _ in range(PASSES):
            has_moved = False
            for start in range(0, codes.shape[2], _TOGETHER):
                stop = min(start + _TOGETHER, codes.shape[2])
                moved = np.zeros((*codes.shape[:2], stop - start))
                near = slopes[:, :, start:stop].copy()
                for at in range(start, stop):
                    scale, old = self._scale[:, :, at], codes[:, :, at]
                    step = near[:, :, at - start] / (curves[:, at, None] * scale)
                    new = np.clip(np.rint(old - step), *self._ends)
                    moved[:, :, at - start] = change = (new - old) * scale
                    codes[:, :, at] = new
                    near += change[:, :, None] * self._moments[:, at, None, start:stop]
                if moved.any():
                    has_moved = True
                    slopes += moved @ self._moments[:, start:stop, :]
            if not has_moved:
                break
        return codes


def damped(moments: Doubles) -> Doubles:
    """``moments`` with a part of the mean of their diagonal added to it; the unit matrix where all
    are zero, by which the nearest codes are the best.
    """
    mean = np.einsum("gkk->gk", moments).mean(axis=1)
    added = np.where(mean > 0, _DAMPING * mean, 1.0)
    return moments + added[:, None, None] * np.eye(moments.shape[1])
