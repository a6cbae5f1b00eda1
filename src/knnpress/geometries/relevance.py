"""What each channel, and each pair of channels, has to do with the divergence of two matrices."""

from __future__ import annotations

import numpy as np

from knnpress import _core
from knnpress.typing import Array


def channel_shares(X: Array, Z: Array) -> Array:
    r"""What JBLD of each :math:`X_i` and :math:`Z_i` loses when a channel is left out of both, (n, d).

    Leaving out the channel k divides a determinant by the Schur complement :math:`1 / (A^{-1})_{kk}`, so that

    .. math:: D_J - D_J^{(-k)} = \frac{1}{2} \log (X^{-1})_{kk} + \frac{1}{2} \log (Z^{-1})_{kk}
              - \log \left(\left(\tfrac{X + Z}{2}\right)^{-1}\right)_{kk}

    which is never negative: a divergence of parts is at most the divergence of the whole.

    Parameters
    ----------
    X, Z : ndarray of shape (n, d, d)
        Checked matrices, compared one by one.
    """
    x, z, middle = (np.log(np.einsum("nkk->nk", A)) for A in _inverses(X, Z))
    return 0.5 * (x + z) - middle


def pair_shares(X: Array, Z: Array) -> Array:
    r"""What JBLD loses when two channels are left out beyond what it loses by each alone, (n, d, d); 0 on the diagonal.

    The Schur complement is then the inverse of the 2 x 2 block of :math:`A^{-1}` at both. Far from 0 where it is the
    correlation of two channels that differs.
    """

    def beyond(inverse: Array) -> Array:
        """Log-determinant of each 2 x 2 block less the logarithms of its diagonal."""
        diagonal = np.einsum("nkk->nk", inverse)
        correlation = inverse**2 / (diagonal[:, :, None] * diagonal[:, None, :])
        correlation[:, *np.diag_indices(inverse.shape[1])] = 0.0
        return np.log1p(-np.minimum(correlation, 1.0 - 1e-15))

    x, z, middle = (beyond(A) for A in _inverses(X, Z))
    return 0.5 * (x + z) - middle


def _inverses(X: Array, Z: Array) -> list[Array]:
    return [_core.SpdLanes(np.ascontiguousarray(A)).inverse() for A in (X, Z, 0.5 * (X + Z))]
