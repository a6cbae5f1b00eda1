"""Covariances of signals, against pyRiemann's and scikit-learn's."""

import numpy as np
import pytest
import sklearn.covariance
from numpy.testing import assert_allclose
from pyriemann.estimation import BlockCovariances, Covariances, ERPCovariances
from scipy.signal import butter, sosfiltfilt
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import SignalCovariance
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import JBLD

ESTIMATORS = ["empirical", "ledoit_wolf", "oas"]
THEIRS = {"empirical": "scm", "ledoit_wolf": "lwf", "oas": "oas"}


@pytest.mark.parametrize("ours", ESTIMATORS)
def test_estimates_are_pyriemanns(rng, ours):
    X = rng.normal(size=(5, 4, 60)) * np.array([1, 2, 0.1, 5])[:, None]
    assert_allclose(SignalCovariance(ours).fit_transform(X), Covariances(THEIRS[ours]).fit_transform(X), rtol=1e-10)


@pytest.mark.parametrize("estimator", ["ledoit_wolf", "oas"])
@pytest.mark.parametrize("shape", [(40, 21, 480), (7, 6, 5), (3, 1, 50), (2, 5, 3)])
@pytest.mark.parametrize("offset", [0.0, 0.5, 1e4])
def test_batches_are_scikit_learns_one_by_one(rng, estimator, shape, offset):
    X = (
        rng.normal(size=shape) @ np.diag(rng.uniform(0.1, 3, size=shape[2]))
        + offset * rng.normal(size=shape[1])[:, None]
    )
    one = getattr(sklearn.covariance, estimator)
    theirs = np.stack([one(x.T)[0] for x in X])
    ours = SignalCovariance(estimator).fit_transform(X)
    assert np.abs(ours - theirs).max() <= 1e-12 * np.abs(theirs).max()


def test_shrinking_estimates_survive_short_and_dependent_signals_and_tell_of_flat_channels(rng):
    X = rng.normal(size=(3, 8, 5))
    X[1, 3] = X[1, 2]
    for estimator in ("ledoit_wolf", "oas"):
        assert (np.linalg.eigvalsh(SignalCovariance(estimator).fit_transform(X)) > 0).all()
    X[2, 6] = 7.0
    for estimator in ("ledoit_wolf", "oas"):
        with pytest.warns(UserWarning, match=r"channel 6 of X\[2\] is flat, as in 1 of 3 signals.*drop the channel"):
            assert (np.linalg.eigvalsh(SignalCovariance(estimator).fit_transform(X)) > 0).all()
    with pytest.raises(
        InvalidPointError, match=r"X\[0\] is singular, as are 3 of 3.*SignalCovariance\('ledoit_wolf'\)"
    ):
        SignalCovariance("empirical").fit_transform(X)


@pytest.mark.parametrize("value", [0.0, 7.0, 1e-30, 0.1])
def test_the_flat_channel_is_named(rng, value):
    X = rng.normal(size=(4, 3, 50))
    X[2, 1] = value
    with pytest.raises(InvalidPointError, match=r"X\[2\] is singular, the only one of 4: channel 1 is flat"):
        SignalCovariance("empirical").fit_transform(X)
    with pytest.raises(InvalidPointError, match=r"X\[2\] is singular.*channel 1 is flat"):
        SignalCovariance("empirical", delays=2).fit_transform(X)


def test_a_quiet_channel_is_not_flat(rng):
    X = rng.normal(size=(4, 3, 50))
    X[:, 1] *= 1e-9
    X[:, 1] += 1e-3
    SignalCovariance("oas").fit_transform(X)


def options(rng):
    y = np.tile(["a", "b"], 30)
    X = rng.normal(size=(60, 3, 80)) + (y == "b")[:, None, None] * np.sin(np.arange(80) / 9)
    bands = [(4, 12), (12, 30)]
    models = {
        "plain": SignalCovariance("oas"),
        "delays": SignalCovariance("oas", delays=3, lag=2),
        "block": SignalCovariance("oas", bands=bands, rate=100),
        "full": SignalCovariance("oas", bands=bands, rate=100, stack="full"),
        "bank": SignalCovariance("oas", bands=bands, rate=100, stack="bank", delays=2),
        "evoked": SignalCovariance("oas", evoked="all"),
        "evoked bands": SignalCovariance("ledoit_wolf", evoked=["b"], components=2, bands=bands, rate=100),
    }
    return X, y, models


@pytest.mark.parametrize("name", list(options(np.random.default_rng(0))[2]))
def test_threads_blocks_types_stores_and_dask_change_nothing(rng, tmp_path, name, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, y, models = options(rng)
    X = X.astype(np.float32)
    before = X.copy()
    model = clone(models[name]).set_params(n_jobs=1).fit(X, y)
    alone = model.transform(X)
    assert alone.dtype == np.float64
    assert np.array_equal(model.transform(X.astype(np.float64)), alone)
    assert np.array_equal(np.concatenate([model.transform(X[:7]), model.transform(X[7:])]), alone)
    np.save(tmp_path / "x.npy", X)
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    chunked = da.from_array(X, chunks=(13, 2, 50))
    for other, points in (("threads", X), ("a memory map", stored), ("dask", chunked)):
        again = clone(models[name]).set_params(n_jobs=4).fit(points, y)
        found = again.transform(points)
        assert found.shape == alone.shape, other
        assert np.array_equal(np.asarray(found), alone), other
    assert hasattr(model.transform(chunked), "__dask_graph__")
    monkeypatch.setattr("knnpress.execution.threads.BLOCK_BYTES", 2**16)
    assert_allclose(clone(models[name]).fit(X, y).transform(X), alone, rtol=1e-12, atol=1e-15)
    assert np.array_equal(X, before)


def test_a_memory_map_is_never_in_memory_as_a_whole(tmp_path):
    import tracemalloc

    X = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(2000, 8, 500))  # 32 MB
    X[:] = np.random.default_rng(0).normal(size=(1, 8, 500))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    tracemalloc.start()
    try:
        SignalCovariance("oas", n_jobs=1).fit_transform(stored)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 12e6


def test_delays_are_the_covariance_of_delayed_copies(rng):
    X = rng.normal(size=(4, 3, 60))
    copies = np.concatenate([X[:, :, 0:50], X[:, :, 5:55], X[:, :, 10:60]], axis=1)
    assert_allclose(
        SignalCovariance("oas", delays=3, lag=5).fit_transform(X), Covariances("oas").fit_transform(copies), rtol=1e-10
    )


def test_delays_tell_rhythms_apart_that_covariances_do_not(rng):
    """Two rhythms of one amplitude have one covariance; what they are a quarter period later differs."""
    t = np.arange(200) / 100
    y = np.tile([0, 1], 60)
    X = np.stack([np.sin(2 * np.pi * (8, 14)[c] * t + rng.uniform(0, 7)) for c in y])[:, None] * np.ones((2, 1))
    X = X + rng.normal(size=X.shape)
    right = []
    for delays in (1, 4):
        model = make_pipeline(SignalCovariance("oas", delays=delays, lag=3), kp.PrototypeClassifier("jbld"))
        right.append(model.fit(X[:60], y[:60]).score(X[60:], y[60:]))
    assert right[1] > 0.9 > 0.75 > right[0]


def filtered(X, bands, rate):
    return np.stack([sosfiltfilt(butter(4, band, "bandpass", fs=rate, output="sos"), X) for band in bands], axis=1)


def test_bands_are_blocks_as_pyriemanns_or_one_matrix_or_a_bank(rng):
    X, bands = rng.normal(size=(4, 3, 200)), [(5, 12), (12, 30), (30, 45)]
    S = filtered(X, bands, 100)
    settings = {"bands": bands, "rate": 100}
    block = SignalCovariance("oas", **settings).fit_transform(X)
    assert_allclose(block, BlockCovariances(3, "oas").fit_transform(S.reshape(4, 9, 200)), rtol=1e-10, atol=1e-15)
    full = SignalCovariance("oas", stack="full", **settings).fit_transform(X)
    assert_allclose(full, Covariances("oas").fit_transform(S.reshape(4, 9, 200)), rtol=1e-10, atol=1e-15)
    bank = SignalCovariance("oas", stack="bank", **settings).fit_transform(X)
    assert bank.shape == (4, 3, 3, 3)
    for k in range(3):
        assert_allclose(bank[:, k], Covariances("oas").fit_transform(S[:, k]), rtol=1e-10, atol=1e-15)
    for stack, found in (("block", block), ("full", full), ("bank", bank)):
        assert_allclose(SignalCovariance("oas", stack=stack).fit_transform(S), found, rtol=1e-10, atol=1e-15)
    together = sum(JBLD().pairwise(bank[:, k]) for k in range(3))
    assert_allclose(JBLD().pairwise(block), together, rtol=1e-9, atol=1e-12)  # blocks: bands count alike, and add up


def test_a_band_holds_what_is_in_it(rng):
    t = np.arange(300) / 100
    X = (np.sin(2 * np.pi * 10 * t) + 0.01 * rng.normal(size=(5, 2, 300))) * np.array([1.0, 0.5])[:, None]
    low, high = (
        SignalCovariance("oas", bands=[(8, 12), (20, 30)], rate=100, stack="bank").fit_transform(X).swapaxes(0, 1)
    )
    assert (low[:, 0, 0] > 100 * high[:, 0, 0]).all()


@pytest.mark.parametrize("estimator", ["empirical", "oas"])
@pytest.mark.parametrize("classes", [None, ["b"]])
def test_evoked_responses_are_pyriemanns(rng, estimator, classes):
    X, y, _ = options(rng)
    if estimator == "empirical":
        X = X + 0.1 * rng.normal(size=X.shape)
    theirs = ERPCovariances(classes=classes, estimator=THEIRS[estimator]).fit(X, y)
    ours = SignalCovariance(estimator, evoked=classes or "all").fit(X, y)
    assert ours.evoked_classes_.tolist() == (classes or ["a", "b"])
    assert_allclose(ours.transform(X[:9]), theirs.transform(X[:9]), rtol=1e-9, atol=1e-13)


def test_components_of_evoked_responses_are_pyriemanns(rng):
    X, y, _ = options(rng)
    theirs = ERPCovariances(estimator="oas", svd=2).fit(X, y).transform(X)
    ours = SignalCovariance("oas", evoked="all", components=2).fit(X, y).transform(X)
    assert ours.shape == (60, 7, 7)
    assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-8, atol=1e-12)  # the sign of a component is anyone's
    assert_allclose(JBLD().pairwise(ours), JBLD().pairwise(theirs), rtol=1e-8, atol=1e-10)


def test_evoked_responses_tell_classes_apart_that_differ_in_time_alone(rng):
    y = np.tile([0, 1], 100)
    bump = [np.exp(-(((np.arange(100) - at) / 6) ** 2)) for at in (30, 60)]
    X = (
        rng.normal(size=(200, 4, 100))
        + 1.5 * np.stack([bump[c] for c in y])[:, None] * np.array([1, 1, 0.5, 0])[:, None]
    )
    right = [
        make_pipeline(SignalCovariance("oas", evoked=evoked), kp.PrototypeClassifier("jbld"))
        .fit(X[:100], y[:100])
        .score(X[100:], y[100:])
        for evoked in (None, "all")
    ]
    assert right[1] > 0.9 > 0.7 > right[0]


def test_a_saved_descriptor_has_its_responses(rng, tmp_path):
    X, y, models = options(rng)
    for model in (models["evoked bands"], models["delays"]):
        kp.save(model.fit(X, y), tmp_path / "s.knnp")
        assert np.array_equal(kp.load(tmp_path / "s.knnp").transform(X), model.transform(X))
    with pytest.raises(ValueError, match="not fitted"):
        kp.save(SignalCovariance(evoked="all"), tmp_path / "t.knnp")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 20)), r"X has shape \(3, 20\); expected \(n_signals, channels, times\)"),
        (np.zeros((2, 3, 1)), r"X has 1 time\(s\)"),
        (np.zeros((0, 3, 5)), r"X has 0 sample\(s\)"),
        (np.full((2, 3, 4), np.nan), r"X\[0\] contains NaN"),
        (np.ones((2, 3, 4)), r"X\[0\] is singular"),
        (np.ones((2, 3, 4)) + 1j, r"Complex data not supported: X has dtype complex128; .*np\.concatenate\(\[X\.real"),
        ([["a"]], r"X cannot be read as numbers"),
    ],
)
def test_bad_signals_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SignalCovariance().fit_transform(X)


def test_the_signal_that_is_bad_is_named_among_all(rng, tmp_path):
    da = pytest.importorskip("dask.array")
    X = rng.normal(size=(900, 5, 400)).astype(np.float32)
    X[[700, 850], 3, 2] = np.nan
    np.save(tmp_path / "x.npy", X)
    for points in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        with pytest.raises(InvalidPointError, match=r"X\[700\] contains NaN or infinity \(nan at \[3, 2\]\)"):
            SignalCovariance(n_jobs=2).transform(points)
    with pytest.raises(InvalidPointError, match=r"X\[700\] contains NaN.*\(looked at: rows 500 to 749\)$"):
        SignalCovariance().transform(da.from_array(X, chunks=(250, 5, 400)))[:750].compute()
    X = np.nan_to_num(X)
    X[640, 4] = 3.0
    with pytest.raises(InvalidPointError, match=r"X\[640\] is singular.*channel 4 is flat"):
        SignalCovariance("empirical").transform(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "mcd"}, "estimator is 'mcd'; choose one of 'empirical', 'ledoit_wolf', 'oas'"),
        ({"delays": 0}, "delays is 0; give a whole number, 1 or more"),
        ({"lag": 1.5}, r"lag is 1\.5"),
        ({"components": True}, "components is True"),
        ({"stack": "rows"}, "stack is 'rows'; choose one of 'block', 'full', 'bank'"),
        ({"evoked": "left"}, "evoked is 'left'; give a list of classes"),
        ({"evoked": "all", "delays": 2}, "evoked is given, and delays is 2"),
        ({"bands": [(8, 12)]}, r"bands are given, and rate is None; give the samples per second, e\.g\. rate=250"),
        ({"bands": [], "rate": 100}, r"bands is \[\]; give some"),
        ({"bands": 5, "rate": 100}, "bands is 5; give some"),
        ({"bands": [("a", "b")], "rate": 100}, r"bands\[0\] is \('a', 'b'\); give \(low, high\)"),
        ({"evoked": []}, "evoked is empty; give a list of classes"),
        ({"bands": [(8, 12), (12, 60)], "rate": 100}, r"bands\[1\] is \(12, 60\).*high < 50, half the rate"),
        ({"bands": [8, 12], "rate": 100}, r"bands\[0\] is 8; give \(low, high\)"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SignalCovariance(**settings).fit(None)


def test_windows_too_short_or_of_another_length_are_refused(rng):
    X, y, models = options(rng)
    with pytest.raises(ValueError, match=r"X has 20 time\(s\).*3 delays of 10 and a covariance need at least 22"):
        SignalCovariance(delays=3, lag=10).fit_transform(X[:, :, :20])
    with pytest.raises(ValueError, match=r"X has 27 time\(s\).*filters need at least 28"):
        models["block"].fit_transform(X[:, :, :27])
    assert models["block"].fit_transform(X[:, :, :28]).shape == (60, 6, 6)
    with pytest.raises(ValueError, match=r"with bands of its own, and bands is given"):
        models["block"].fit_transform(X[:, None])
    with pytest.raises(ValueError, match=r"X has 1 band\(s\) of 70 times, and fit saw 1 of 80"):
        models["evoked"].fit(X, y).transform(X[:, :, :70])
    with pytest.raises(ValueError, match=r"y is None; evoked responses are means of classes"):
        models["evoked"].fit(X)
    with pytest.raises(ValueError, match=r"y has shape \(3,\); give one label for each of the 60 signals"):
        models["evoked"].fit(X, y[:3])
    with pytest.raises(ValueError, match=r"evoked has 'c', which is not in y; its classes are \['a', 'b'\]"):
        SignalCovariance(evoked=["c"]).fit(X, y)
    with pytest.raises(ValueError, match=r"components is 9, but signals have 3 channels"):
        SignalCovariance(evoked="all", components=9).fit(X, y)
    with pytest.raises(ValueError, match=r"evoked responses are not known yet; call fit\(X, y\)"):
        SignalCovariance(evoked="all").transform(X)
    with pytest.raises(ValueError, match="X has 2 channels, and fit saw 3; give the same"):
        models["evoked"].fit(X, y).transform(X[:, :2])
    with pytest.raises(ValueError, match=r"y\[1\] is missing"):
        SignalCovariance(evoked="all").fit(X, np.where(np.arange(60) == 1, np.nan, 0.0))


@pytest.mark.parametrize("estimator", ["oas", "ledoit_wolf", "empirical"])
def test_masked_signals_and_those_whose_squares_overflow_are_refused(rng, estimator):
    X = rng.normal(size=(4, 3, 50))
    masked = np.ma.array(X, mask=np.arange(600).reshape(X.shape) == 320)
    with pytest.raises(InvalidPointError, match=r"X\[2\] is masked at \[0, 20\]"):
        SignalCovariance(estimator).fit_transform(masked)
    np.testing.assert_array_equal(
        SignalCovariance(estimator).fit_transform(np.ma.array(X)), SignalCovariance(estimator).fit_transform(X)
    )
    X[1] *= 1e200
    with pytest.raises(InvalidPointError, match=r"covariance of X\[1\] overflows, the only one of 4; scale"):
        SignalCovariance(estimator).fit_transform(X)


def test_the_cure_of_a_singular_covariance_is_not_what_was_done():
    with pytest.raises(InvalidPointError, match="channel 0 is flat; drop such channels or signals, and scale"):
        SignalCovariance("ledoit_wolf").fit_transform(np.ones((2, 3, 50)))
