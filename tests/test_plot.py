"""Pictures for notebooks, the summary of a fitted model, and decision values."""

import sys

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

import knnpress as kp

DIGITS = kp.datasets.load_digits_covariances()
HISTOGRAMS = kp.datasets.load_digits_histograms()


@pytest.fixture(scope="module")
def scc():
    return kp.SCC(n_prototypes=10, max_iter=5, prior=1.0, smoothing=0.02).fit(DIGITS.X[:200], DIGITS.y[:200])


@pytest.fixture(scope="module")
def snc():
    return kp.SNC(n_prototypes=12, max_iter=3, prior=1.0, smoothing=0.02).fit(
        HISTOGRAMS.X[:200], HISTOGRAMS.y[:200].astype(str)
    )


@pytest.fixture(autouse=True)
def no_window():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_matrices_are_drawn_as_correlations_by_class(scc):
    axes = kp.plot.prototypes(scc)
    assert [ax.get_title() for ax in axes] == [str(label) for label in np.sort(scc.prototype_labels_)]
    order = np.argsort(scc.prototype_labels_, kind="stable")
    drawn = axes[3].images[0].get_array()
    spread = np.sqrt(np.diag(scc.prototypes_[order[3]]))
    np.testing.assert_allclose(drawn, scc.prototypes_[order[3]] / np.outer(spread, spread), atol=1e-9)


def test_vectors_are_drawn_as_bars_or_as_the_image_they_stand_for(snc):
    bars = kp.plot.prototypes(snc)
    assert len(bars) == 12
    first = np.argsort(snc.prototype_labels_, kind="stable")[0]
    np.testing.assert_allclose([bar.get_height() for bar in bars[0].patches], snc.prototypes_[first])
    pictures = kp.plot.prototypes(snc, shape=(8, 8), most=5)
    assert len(pictures) == 5
    np.testing.assert_allclose(pictures[0].images[0].get_array(), snc.prototypes_[first].reshape(8, 8))
    with pytest.raises(ValueError, match=r"shape is \(3, 3\), but a prototype has 64"):
        kp.plot.prototypes(snc, shape=(3, 3))


def cloud_model(d, n_points=3):
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = kp.Clouds.from_list([rng.normal(5.0 * label, 1.0, (4, d)) for label in y])
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 1, "reg": 1.0}
    return kp.SWC(2, n_points=n_points, **plain).fit(X, y), X, y


def test_clouds_in_a_plane_are_drawn_as_points():
    model, X, y = cloud_model(2)
    for fitted in (model, kp.PrototypeClassifier("clouds").fit(X, y)):
        clouds = fitted.prototypes_ if fitted is not model else fitted.prototype_clouds
        axes = kp.plot.prototypes(fitted)
        order = np.argsort(fitted.prototype_labels_, kind="stable")
        for ax, k in zip(axes, order, strict=True):
            np.testing.assert_allclose(ax.collections[0].get_offsets(), clouds[k].points)
            sizes = ax.collections[0].get_sizes()
            np.testing.assert_allclose(sizes / sizes.sum(), clouds[k].weights)
        assert not axes[0].yaxis_inverted()
        assert fitted._repr_html_().count("<circle") == sum(len(clouds[k].points) for k in order)


@pytest.mark.parametrize("n_points", [3, 4, 5])  # as many numbers as a square matrix has, fewer, and more
def test_clouds_of_many_dimensions_have_no_picture(n_points):
    model, *_ = cloud_model(3, n_points)
    with pytest.raises(TypeError, match=r"clouds in 3 dimensions .*; .*knnpress inspect"):
        kp.plot.prototypes(model)
    assert "2 of 20 points" in model._repr_html_()
    assert "img" not in model._repr_html_().split("knnpress-model")[1]


@pytest.mark.parametrize("name", ["contour", "local-features"])
def test_clouds_of_images_are_drawn_where_their_points_are(name):
    yy, xx = np.mgrid[:40, :40] - 20
    images = [np.hypot(xx, yy) < 8 if k % 2 else np.abs(xx) + 0 * yy < 6 for k in range(8)]
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 1, "reg": 1.0}
    model = kp.DescriptorClassifier(name, kp.SWC(2, n_points=4, **plain)).fit(images, np.arange(8) % 2)
    axes = kp.plot.prototypes(model)
    offsets = axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(offsets, model.classifier_.prototypes_[0, :, -3:-1])
    assert axes[0].yaxis_inverted()
    if name == "local-features":
        model.descriptors_[0].position = False
        with pytest.raises(TypeError, match="have no picture"):
            kp.plot.prototypes(model)


def test_the_curve_has_held_out_errors_and_the_full_set():
    X, y = HISTOGRAMS.X[:300], HISTOGRAMS.y[:300]
    model = kp.SNC(n_prototypes=20, max_iter=3, gamma="scale", prior=1.0, smoothing=0.02, vote="nearest")
    ax = kp.plot.curve(model, X, y, sizes=[10, 20], cv=2)
    line = ax.get_lines()[0]
    assert line.get_xdata().tolist() == [10, 20]
    expected = [100 * (1 - cross_val_score(model.set_params(n_prototypes=m), X, y, cv=2).mean()) for m in (10, 20)]
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), expected)
    full = 100 * (1 - cross_val_score(kp.PrototypeClassifier("sqeuclidean"), X, y, cv=2).mean())
    across = [one for one in ax.get_lines() if one.get_label() == "full 1-NN"]
    np.testing.assert_allclose(np.asarray(across[0].get_ydata(), float), full)


def test_the_confusions_are_those_of_the_model(scc):
    ax = kp.plot.confusion(scc, DIGITS.X[200:400], DIGITS.y[200:400])
    counts = np.array([[int(text.get_text()) for text in ax.texts]]).reshape(10, 10)
    assert counts.sum() == 200
    assert np.trace(counts) == round(200 * scc.score(DIGITS.X[200:400], DIGITS.y[200:400]))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"knnpress\.plot draws with matplotlib: pip install knnpress\[report\]"):
        kp.plot.confusion(None, None, None)


def test_a_fitted_model_shows_its_prototypes_error_and_size(scc, snc):
    shown = scc._repr_html_()
    assert shown.startswith(estimator_html_repr(scc)[:40])
    assert "10 of 200 points" in shown
    assert f"{scc.prototypes_.nbytes / 1000:.1f} kB" in shown
    chosen = [one for one in scc.selection_ if one["chosen"]][-1]
    assert f"{chosen['error']:.2%} ±" in shown
    assert shown.count("<img") == 10
    below = [text.split('class="knnpress-model"')[1] for text in (shown, scc._repr_mimebundle_()["text/html"])]
    assert below[0] == below[1]
    assert snc._repr_html_().count('aria-label="prototype"') == 12


def test_a_model_that_is_not_fitted_shows_the_diagram_alone(scc):
    assert "knnpress-model" not in kp.SCC()._repr_html_()
    assert "SCC" in kp.SCC()._repr_html_()
    assert "SCC" in make_pipeline(kp.SCC())._repr_html_()


def test_names_of_classes_are_text_in_a_notebook(rng):
    X, y = rng.random((40, 3)), np.array(["<script>", "b"] * 20)
    shown = kp.PrototypeClassifier("sqeuclidean").fit(X, y)._repr_html_()
    assert "&lt;script&gt;" in shown.split("knnpress-model")[1]
    assert "<script>" not in shown.split("knnpress-model")[1]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "make",
    [lambda: kp.SNC(n_prototypes=6, max_iter=3), lambda: kp.PrototypeClassifier("sqeuclidean", n_neighbors=4)],
    ids=["learned", "votes"],
)
def test_decision_values_have_scikit_learns_shapes_and_agree_with_predict(rng, make, n_classes):
    X, y = rng.normal(size=(120, 4)), rng.integers(n_classes, size=120)
    X[:, 0] += y
    clf = make().fit(X, y)
    values, predicted = clf.decision_function(X), clf.predict(X)
    assert values.shape == ((120,) if n_classes == 2 else (120, n_classes))
    assert np.isfinite(values).all()
    assert ((values > 0).astype(int) if n_classes == 2 else values.argmax(axis=1)).tolist() == predicted.tolist()
    p = clf.predict_proba(X)
    inside = (p > 1e-200).all(axis=1)
    expected = np.log(p[inside])
    expected = expected[:, 1] - expected[:, 0] if n_classes == 2 else expected
    np.testing.assert_allclose(values[inside], expected, atol=1e-9)
    if n_classes == 2:
        assert roc_auc_score(y, values) == pytest.approx(roc_auc_score(y, p[:, 1]), abs=0.03)  # ties are settled


def test_decision_values_of_described_signals(rng):
    signals, y = rng.normal(size=(40, 3, 50)) * np.repeat([1.0, 3.0], 20)[:, None, None], ["a"] * 20 + ["b"] * 20
    clf = kp.DescriptorClassifier(kp.descriptors.SignalCovariance(), kp.PrototypeClassifier("jbld")).fit(signals, y)
    assert ((clf.decision_function(signals) > 0) == (clf.predict(signals) == "b")).all()


def test_data_frames_keep_their_names():
    pandas = pytest.importorskip("pandas", reason="no pandas: pip install pandas")
    frame = pandas.DataFrame(HISTOGRAMS.X[:200], columns=[f"pixel {k}" for k in range(64)])
    clf = kp.SNC(n_prototypes=10, max_iter=2).fit(frame, HISTOGRAMS.y[:200])
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert clf.predict(frame).shape == (200,)
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(frame[frame.columns[::-1]])
    distances = clf.set_output(transform="pandas").transform(frame)
    assert list(distances.columns) == list(clf.get_feature_names_out())
    assert (distances.index == frame.index).all()


def test_pandas_output_is_of_transform_alone():
    pandas = pytest.importorskip("pandas", reason="no pandas: pip install pandas")
    frame, y = pandas.DataFrame(HISTOGRAMS.X[:100]), HISTOGRAMS.y[:100]
    plain = kp.SNC(n_prototypes=10, max_iter=2).fit(frame, y)
    clf = kp.SNC(n_prototypes=10, max_iter=2).set_output(transform="pandas").fit(frame, y)
    assert isinstance(clf.transform(frame), pandas.DataFrame)
    for method in ("predict", "outlier_score", "score_samples"):
        assert np.array_equal(getattr(clf, method)(frame), getattr(plain, method)(frame))
    matrices = kp.datasets.load_digits_covariances()
    scc = kp.SCC(n_prototypes=10, metric="jbld", gamma="scale", prior=1.0, max_iter=2).set_output(transform="pandas")
    scc.fit(matrices.X[:100], matrices.y[:100])
    assert scc.feature_relevance(matrices.X[:5]).shape == (11,)
