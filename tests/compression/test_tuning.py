"""The search tries what it should, goes on where it stopped, and says what went wrong."""

from __future__ import annotations

import logging
import os
import sys

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from knnpress import SCC, SHC, SNC, PrototypeClassifier
from knnpress.compression import ClassCentroids, StochasticCompression, Subsample
from knnpress.compression.tuning import _parts, tune
from knnpress.descriptors import SPDProjection
from knnpress.learning.fingerprint import describe

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations, for speed

X, Y = labelled("sqeuclidean", 60)
EXPERT = StochasticCompression(init=ClassCentroids())
SNC_QUICK = SNC(3, gamma=1.0, max_iter=2, prior=1.0, smoothing=0.02, vote="nearest", compressor=EXPERT)
GAMMA = {"gamma": (0.1, 10.0, "log")}


def quick(estimator=SNC_QUICK, **settings):
    return tune(estimator, X, Y, **{"space": GAMMA, "n_trials": 3, "random_state": 0} | settings)


def tried(found):
    return [(trial["params"], trial["score"]) for trial in found.trials]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "search.db"


def test_the_best_trial_is_the_result_and_the_estimator_is_left_alone():
    found = quick(n_trials=5)
    scores = [trial["score"] for trial in found.trials]
    assert found.best_score == max(scores)
    assert found.best_params == found.trials[int(np.argmax(scores))]["params"]
    assert describe(found.estimator) == describe(clone(SNC_QUICK).set_params(**found.best_params))
    assert not hasattr(found.estimator, "prototypes_")
    assert SNC_QUICK.gamma == 1.0
    assert not hasattr(SNC_QUICK, "prototypes_")
    assert all(trial["seconds"] > 0 and trial["failure"] is None for trial in found.trials)
    assert len({trial["params"]["gamma"] for trial in found.trials}) == 5


def test_the_same_seed_gives_the_same_search_and_another_seed_another():
    assert tried(quick()) == tried(quick(random_state=0)) == tried(quick(n_jobs=1))
    assert quick().trials[0]["params"] != quick(random_state=1).trials[0]["params"]
    assert tried(quick(random_state=np.random.default_rng(3))) == tried(quick(random_state=np.random.default_rng(3)))
    quick(random_state=np.random.RandomState(3))


def test_what_the_training_criterion_scores_is_a_fit_on_all():
    for trial in quick(criterion="training").trials:
        assert trial["score"] == clone(SNC_QUICK).set_params(**trial["params"]).fit(X, Y).score(X, Y)


def test_what_the_held_out_criterion_scores_was_not_learned_from():
    parts = _parts(Y, "held-out", 0.25, 2, 0)
    found = quick(n_splits=2)
    for trial in found.trials:
        model = clone(SNC_QUICK).set_params(**trial["params"])
        scores = [clone(model).fit(X[a], Y[a]).score(X[b], Y[b]) for a, b in parts]
        assert_allclose(trial["score"], np.mean(scores))


def test_parts_are_shares_of_each_class_and_a_class_of_one_is_learned_from():
    y = np.array(["a"] * 40 + ["b"] * 20 + ["lone"])
    parts = _parts(y, "held-out", 0.25, 3, 5)
    assert len(parts) == 3
    for rows, held_out in parts:
        assert_array_equal(np.sort(np.concatenate([rows, held_out])), np.arange(61))
        assert list(y[held_out]).count("a") == 10
        assert list(y[held_out]).count("b") == 5
    assert any((parts[0][1] != other).any() for _, other in parts[1:])


def test_an_estimator_without_a_seed_is_given_one():
    estimator = clone(SNC_QUICK).set_params(random_state=None, compressor__init=Subsample(), max_iter=1)
    found = tune(estimator, X, Y, space={"n_neighbors": [1]}, n_trials=4, random_state=2)
    assert len({trial["score"] for trial in found.trials}) == 1
    assert found.estimator.random_state is None


def test_the_default_space_of_vectors():
    found = quick(space=None, n_trials=8)
    usual = clone(SNC_QUICK).set_params(gamma="scale", max_iter=1).fit(X, Y).gamma_
    gammas = [trial["params"]["gamma"] for trial in found.trials]
    assert all(1 / 30 <= (gamma / usual) ** 2 <= 30 for gamma in gammas)
    assert max(gammas) > 3 * min(gammas)
    assert {trial["failure"] for trial in found.trials} == {None}


@pytest.mark.parametrize("value", ["divergence", "transport"])
def test_the_default_space_of_histograms_scales_with_the_ground_cost(value):
    H, y = labelled("emd", 40)
    estimator = SHC(7.0 * GROUND_COST, metric="sinkhorn", n_prototypes=3, max_iter=1, prior=1.0, value=value)
    found = tune(estimator, H, y, n_trials=3, criterion="training", random_state=0)
    median = 7.0 * np.median(GROUND_COST[GROUND_COST > 0])
    for trial in found.trials:
        assert 0.02 <= trial["params"]["reg"] / median <= 0.3
        assert trial["failure"] is None


def test_the_default_space_of_covariances():
    C, y = labelled("jbld", 40)
    found = tune(SCC(3, metric="jbld", max_iter=1, prior=1.0, smoothing=0.02), C, y, n_trials=2, random_state=0)
    assert found.estimator.fit(C, y).score(C, y) > 0.4


def test_a_space_holds_choices_ranges_and_objects():
    init = [Subsample(), ClassCentroids(max_iter=1), None]
    space = {
        "compressor__init": init,
        "n_prototypes": (3, 9),
        "max_iter": (1, 4, "log"),
        "gamma": (0.5, 2.0),
        "vote": ["soft"],
    }
    space["compressor__tol"] = (1e-9, 1e-1, "log")
    found = quick(space=space, n_trials=8)
    for trial in found.trials:
        params = trial["params"]
        assert list(params) == list(space)
        assert any(params["compressor__init"] is choice for choice in init)
        assert type(params["n_prototypes"]) is type(params["max_iter"]) is int
        assert 3 <= params["n_prototypes"] <= 9
        assert 0.5 <= params["gamma"] <= 2.0
    assert len({trial["params"]["n_prototypes"] for trial in found.trials}) > 2
    assert min(trial["params"]["compressor__tol"] for trial in found.trials) < 1e-4


def test_a_space_may_be_a_function_and_the_estimator_any_classifier():
    def space(trial):
        if trial.suggest_categorical("kind", ["sharp", "soft"]) == "sharp":
            return {"compressor__gamma": trial.suggest_float("gamma", 2.0, 4.0)}
        return {"compressor__gamma": 0.1, "n_prototypes": 6}

    estimator = PrototypeClassifier(
        "sqeuclidean", StochasticCompression(max_iter=1, prior=1.0, smoothing=0.02), n_prototypes=3, random_state=0
    )
    found = quick(estimator, space=space, n_trials=6, criterion="training")
    for trial in found.trials:  # none inherits from the one before
        assert trial["score"] == clone(estimator).set_params(**trial["params"]).fit(X, Y).score(X, Y)
    assert {tuple(trial["params"]) for trial in found.trials} == {
        ("compressor__gamma",),
        ("compressor__gamma", "n_prototypes"),
    }
    with pytest.raises(ValueError, match="PrototypeClassifier is not a learned model, so it has no usual space; give"):
        quick(estimator, space=None)


def test_steps_of_a_pipeline_are_tuned_seeded_and_kept_quiet(file, capfd):
    shrink = SPDProjection(4, 5, 5, max_iter=3)
    pipeline = make_pipeline(
        shrink, SCC(3, metric="jbld", gamma=1.0, prior=1.0, max_iter=1, random_state=None, verbose=1)
    )
    space = {"spdprojection__n_dims": (1, 3), "spdprojection__n_within": (1, 9), "spdprojection__n_between": (1, 9)}
    matrices, y = labelled("jbld", 60)
    settings = {"space": space, "n_trials": 3, "random_state": 0, "storage": file}
    found = tune(pipeline, matrices, y, **settings)
    assert capfd.readouterr().err == ""
    assert {trial["failure"] for trial in found.trials} == {None}
    assert found.estimator.named_steps["spdprojection"].n_dims == found.best_params["spdprojection__n_dims"]
    assert found.estimator.named_steps["scc"].random_state is None
    assert found.estimator.named_steps["scc"].verbose == 1
    assert tried(tune(pipeline, matrices, y, **settings | {"storage": None})) == tried(found)  # seeded
    pipeline.set_params(scc__n_jobs=1, scc__verbose=0)  # these change no result
    assert tried(tune(pipeline, matrices, y, **settings)) == tried(found)
    with pytest.raises(ValueError, match="holds another search"):
        tune(pipeline.set_params(scc__n_prototypes=4), matrices, y, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"space": {"gama": [1]}}, "space names 'gama', which SNC does not have; it has .*gamma"),
        *(
            ({"space": {"gamma": bad}}, r"space\['gamma'\] is .*; give a list of choices, \(low, high\), or")
            for bad in ([], (1,), (2, 1), (0, 1, "log"), (1, 2, "lin"), ("a", "b"), 3, (1, 2, "log", 4))
        ),
        ({"n_trials": 0}, "n_trials is 0; give a positive"),
        ({"n_trials": 2.5}, "n_trials is 2.5; give a positive"),
        ({"criterion": "test"}, "criterion is 'test'; choose 'held-out' or 'training'"),
        ({"storage": "no/such/folder/a.db"}, "there is no folder .*folder for the storage; make it first"),
        ({"storage": "what?.db"}, "contains a question mark"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        quick(**settings)


def test_points_and_labels_must_agree():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        tune(SNC_QUICK, X, Y[:-1])


def test_failed_trials_are_recorded_and_skipped():
    found = quick(space={"n_prototypes": [1, 3]}, n_trials=8)
    failures = [trial for trial in found.trials if trial["params"]["n_prototypes"] == 1]
    assert len(found.trials) == 8
    assert 0 < len(failures) < 8
    assert all(np.isnan(t["score"]) and "there are 3 classes" in t["failure"] for t in failures)
    assert found.best_params == {"n_prototypes": 3}
    with pytest.raises(ValueError, match=r"all 3 trials failed; the last one: n_prototypes is 1"):
        quick(space={"n_prototypes": [1]})


def test_a_callback_follows_and_can_stop(capsys):
    seen = []
    estimator = clone(SNC_QUICK).set_params(callback=lambda *call: pytest.fail("the bar of a trial"))
    found = quick(estimator, n_trials=5, callback=lambda *call: seen.append(call) or len(seen) == 3)
    assert [(step, total) for step, total, _ in seen] == [(1, 5), (2, 5), (3, 5)]
    assert len(found.trials) == 3
    assert seen[-1][2] == {"score": found.trials[-1]["score"], "best": found.best_score}
    assert capsys.readouterr() == ("", "")


def test_no_trial_begins_after_the_timeout_but_the_first():
    assert len(quick(n_trials=5, timeout=0.0).trials) == 1


def test_optunas_log_is_quiet_and_left_as_it_was(capfd):
    before, said = optuna.logging.get_verbosity(), []
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    listener = logging.Handler()
    listener.emit = said.append
    logging.getLogger("optuna").addHandler(listener)
    try:
        quick(space={"n_prototypes": [1, 3]})
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
        with pytest.raises(ValueError, match="all 1 trials failed"):
            quick(space={"n_prototypes": [1]}, n_trials=1)
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
        assert capfd.readouterr() == ("", "")
        assert said == []
        optuna.create_study()
        assert said != []  # it would have been heard
    finally:
        logging.getLogger("optuna").removeHandler(listener)
        optuna.logging.set_verbosity(before)


def test_verbose_draws_one_bar(capfd):
    quick(clone(SNC_QUICK).set_params(verbose=1), verbose=1)
    error = capfd.readouterr().err
    assert "tune" in error
    assert "3/3" in error
    assert "SNC" not in error


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"tune needs Optuna: pip install knnpress\[tune\]"):
        quick()


def test_a_search_goes_on_where_it_stopped_and_ends_as_an_unbroken_one(file):
    steps = []

    def note(step, total, facts):
        steps.append(step)

    unbroken = quick(n_trials=12)  # beyond the ten that are drawn blindly
    quick(n_trials=4, storage=file, callback=note)
    study = optuna.load_study(study_name="knnpress", storage=f"sqlite:///{file}")
    for _ in range(5):
        study.ask().suggest_float("gamma", 0.1, 10.0, log=True)  # as a killed process leaves it
    assert tried(quick(n_trials=12, storage=str(file), callback=note, n_jobs=1, verbose=0)) == tried(unbroken)
    assert steps == list(range(1, 13))
    assert tried(quick(n_trials=12, storage=file, callback=note)) == tried(unbroken)
    assert tried(quick(n_trials=2, storage=file, callback=note)) == tried(unbroken)
    talkative = clone(SNC_QUICK).set_params(n_jobs=1, verbose=1, callback=note)
    assert tried(quick(talkative, n_trials=12, storage=file)) == tried(unbroken)
    assert len(steps) == 12


class Interrupted(SNC):
    """Ctrl-C comes in the third fit."""

    fits = 0

    def fit(self, X, y, sample_weight=None, groups=None):
        Interrupted.fits += 1
        if Interrupted.fits == 3:
            raise KeyboardInterrupt
        return super().fit(X, y)


def test_ctrl_c_keeps_what_is_finished(file):
    estimator = Interrupted(**SNC_QUICK.get_params(deep=False))
    with pytest.raises(KeyboardInterrupt):
        quick(estimator, n_trials=4, storage=file)
    assert Interrupted.fits == 3
    resumed = quick(estimator, n_trials=4, storage=file)
    assert Interrupted.fits == 5
    assert tried(resumed) == tried(quick(n_trials=4))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a list of open files")
def test_the_storage_is_closed_after_use(file):
    quick(n_trials=1, storage=file)
    assert file.exists()
    assert str(file) not in {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}


def test_a_failed_trial_is_not_run_again(file):
    space = {"n_prototypes": [1]}
    for n_trials in (2, 2, 3):
        with pytest.raises(ValueError, match=f"all {n_trials} trials failed"):
            quick(space=space, n_trials=n_trials, storage=file)


def test_without_a_random_state_a_stored_search_keeps_its_own(file):
    first = quick(random_state=None, n_trials=2, storage=file)
    second = quick(random_state=None, n_trials=3, storage=file)
    assert tried(second)[:2] == tried(first)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The arguments of a search whose file is there."""
    call = {"estimator": SNC_QUICK, "X": X, "y": Y, "space": GAMMA, "n_trials": 1, "random_state": 0}
    call["storage"] = tmp_path_factory.mktemp("tune") / "search.db"
    tune(**call)
    return call


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": X + 1e-9}, r"holds another search: X was array of shape \(60, 4\)"),
        ({"X": X[:30], "y": Y[:30]}, r"X was array of shape \(60, 4\) .* and is array of shape \(30, 4\)"),
        ({"y": Y[::-1]}, "holds another search: y was"),
        ({"estimator": clone(SNC_QUICK).set_params(max_iter=3)}, r"SNC.max_iter was 2 and is 3\. Give another file"),
        ({"estimator": clone(SNC_QUICK).set_params(prior=2.0)}, r"SNC.prior was 1\.0 and is 2\.0"),
        ({"space": {"gamma": (0.1, 9.0, "log")}}, r"space was \{'gamma': tuple\(0.1, 10.0, 'log'\)\} and is"),
        ({"criterion": "training"}, "criterion was held-out"),
        ({"validation_fraction": 0.5}, "criterion was held-out, 0.25"),
        ({"random_state": 1}, "random_state was 0 and is 1"),
    ],
)
def test_the_storage_of_another_search_is_refused(change, message, stored):
    with pytest.raises(ValueError, match=message):
        tune(**stored | change)


def test_the_storage_of_a_search_that_never_began_may_be_used_again(file):
    with pytest.raises(ValueError, match="NaN"):
        tune(SNC_QUICK, np.full_like(X, np.nan), Y, storage=file)
    assert len(quick(storage=file).trials) == 3


def test_a_file_of_another_kind_is_refused_and_left_alone(file):
    file.write_text("not a data base, but long enough to have had a header" * 9)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"storage .*search\.db cannot be used .*; give a new file"):
        quick(storage=file)
    assert file.read_bytes() == before
