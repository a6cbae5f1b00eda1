"""How long is left, told from the runs that are done; and warnings that point at the user's line."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import knnpress as kp
from knnpress.experiments.plan import load_plan
from knnpress.experiments.runner import _in_order, _left


@pytest.mark.parametrize("name", ["demo", "digits"])
@pytest.mark.parametrize("seed", range(5))
def test_time_left_is_known_soon_however_wrong_the_guesses_are(name, seed):
    """Guesses are wrong by a factor of each method on each data set, up to thirty; runs vary by a tenth."""
    rng = np.random.default_rng(seed)
    cells = load_plan(name).cells()
    costs = {cell.id: float(0.2 + 20 * (cell.ratio or 0.01) * rng.uniform(0.9, 1.1)) for cell in cells}
    wrong = {(cell.study.name, cell.method): float(np.exp(rng.uniform(-1.7, 1.7))) for cell in cells}
    real = {cell.id: costs[cell.id] * wrong[cell.study.name, cell.method] * rng.uniform(0.9, 1.1) for cell in cells}
    order = _in_order(cells, costs)
    assert sorted(cell.id for cell in order) == sorted(cell.id for cell in cells)
    seen, start = [], max(10, len(wrong))
    for done, cell in enumerate(order[:-1], 1):
        seen.append((cell, real[cell.id]))
        if done >= start:
            rest = order[done:]
            assert _left(rest, seen, costs) == pytest.approx(sum(real[one.id] for one in rest), rel=0.3)


def test_without_a_run_the_guess_is_told():
    cells = load_plan("demo").cells()
    assert _left(cells, [], dict.fromkeys((cell.id for cell in cells), 2.0)) == pytest.approx(2 * len(cells))


def lines_of(caught):
    return {(w.filename, w.lineno) for w in caught if issubclass(w.category, ConvergenceWarning)}


@pytest.mark.parametrize("how", ["fit", "cross-validation"])
def test_a_convergence_warning_points_at_the_users_line(how):
    data = kp.datasets.load_digits_covariances()
    X, y = data.X[:120], data.y[:120]
    model = kp.SCC(n_prototypes=10, max_iter=1, metric="jbld", gamma=1.0, prior=0.01, smoothing=0.0, vote="nearest")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if how == "fit":
            model.fit(X, y)
        else:
            cross_val_score(model, X, y, cv=2)
    places = lines_of(caught)
    assert places, [str(w.message) for w in caught]
    assert {filename for filename, _ in places} == {__file__}
    with open(__file__, encoding="utf-8") as file:
        source = file.read().splitlines()
    (line,) = {line for _, line in places}
    assert source[line - 1].strip() == ("model.fit(X, y)" if how == "fit" else "cross_val_score(model, X, y, cv=2)")
