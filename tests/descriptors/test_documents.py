"""Documents as clouds of word vectors."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

import knnpress as kp
from knnpress.descriptors import WordClouds
from knnpress.exceptions import InvalidPointError

WORDS = ["boat", "ship", "sail", "queen", "rook", "pawn"]
VECTORS = np.random.default_rng(0).normal(size=(6, 4))
TEXTS = ["The boat: a ship, no more than a boat!", "Rook takes pawn, queen takes rook", "sail the SHIP"]


def dense(clouds, vectors=VECTORS):
    """Weights of clouds by word, (n, v)."""
    table = np.zeros((len(clouds), len(vectors)))
    for row, (points, weights) in enumerate(clouds):
        for point, weight in zip(points, weights, strict=True):
            table[row, np.flatnonzero((vectors == point).all(axis=1))[0]] += weight
    return table


@pytest.mark.parametrize("weighting", ["counts", "tfidf"])
def test_weights_are_those_of_scikit_learn(weighting):
    counts = CountVectorizer(vocabulary=WORDS).transform(TEXTS)
    plain = TfidfTransformer(norm=None).fit_transform(counts) if weighting == "tfidf" else counts
    expected = plain.toarray() / plain.toarray().sum(axis=1, keepdims=True)
    assert_allclose(dense(WordClouds(VECTORS, WORDS, weighting=weighting).fit_transform(TEXTS)), expected)


@pytest.mark.parametrize("as_matrix", [csr_array, coo_array, np.asarray])
def test_counts_and_texts_give_the_same_clouds_and_are_not_changed(as_matrix):
    counts = CountVectorizer(vocabulary=WORDS).transform(TEXTS).toarray()
    given = as_matrix(counts.astype(float))
    words = WordClouds(VECTORS, WORDS).fit(given)
    assert words.transform(given) == WordClouds(VECTORS, WORDS).fit(TEXTS).transform(TEXTS)
    assert_array_equal(given if as_matrix is np.asarray else given.toarray(), counts)


def test_document_frequencies_are_those_of_the_fitted_documents():
    words = WordClouds(VECTORS, WORDS).fit(TEXTS)
    assert words.n_documents_ == 3
    assert words.document_counts_.tolist() == [1, 2, 1, 1, 1, 1]
    weights = dense(words.transform(["boat ship"]))[0]
    assert weights[0] > weights[1] > 0  # fewer documents have a boat


def test_only_the_heaviest_words_are_kept():
    words = WordClouds(VECTORS, WORDS, weighting="counts", n_words=2).fit(TEXTS)
    kept = dense(words.transform(["pawn boat boat boat queen queen", "sail ship boat"]))
    assert_allclose(kept, [[0.6, 0, 0, 0.4, 0, 0], [0.5, 0.5, 0, 0, 0, 0]])
    assert WordClouds(VECTORS, WORDS, n_words=99).fit(TEXTS).transform(TEXTS) == WordClouds(
        VECTORS, WORDS
    ).fit_transform(TEXTS)


def test_case_and_stop_words_are_as_asked_for():
    upper = WordClouds(VECTORS, WORDS, lowercase=False).fit(TEXTS)
    assert upper.document_counts_[1] == 1  # SHIP is another word
    assert WordClouds(VECTORS, WORDS, stop_words=["boat"]).fit(TEXTS).document_counts_[0] == 0


def test_clouds_store_only_the_words_that_occur_and_each_once():
    words = WordClouds(np.random.default_rng(1).normal(size=(1000, 3)), weighting="counts")
    counts = np.zeros((5, 1000))
    counts[:, [3, 700]] = 1
    assert words.fit_transform(counts).table.shape == (2, 3)


def test_points_are_named_by_the_nearest_words_that_were_seen():
    words = WordClouds(VECTORS, WORDS).fit(["boat ship queen"])
    prototype = np.column_stack([VECTORS[[0, 0, 3]] + 0.01, [0.2, 0.3, 0.5]])
    (named,) = words.words_of(prototype[None])
    assert [word for word, _ in named] == ["boat", "queen"]
    assert_allclose([weight for _, weight in named], [0.5, 0.5])
    (named,) = words.words_of(kp.Clouds.from_list([VECTORS[[5]]]), 1)  # no document has a pawn
    assert named[0][0] in ("boat", "ship", "queen")


def test_known_documents_are_told():
    words = WordClouds(VECTORS, WORDS).fit(TEXTS)
    assert words.known(["a boat", "", "nothing of that"]).tolist() == [True, False, False]


def test_a_model_of_texts_survives_its_file(tmp_path):
    words = WordClouds(VECTORS.astype(np.float32), WORDS)
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 3}
    texts, y = [*TEXTS, "queen rook", "boat sail", "pawn pawn"], ["sea", "chess", "sea", "chess", "sea", "chess"]
    model = kp.DescriptorClassifier(words, kp.SWC(2, n_points=2, **plain)).fit(texts, y)
    assert model.predict(texts).tolist() == y
    model.save(tmp_path / "model.kp")
    again = kp.load(tmp_path / "model.kp")
    assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))
    named = again.descriptors_[0].words_of(again.classifier_.prototypes_)
    assert {word for word, _ in named[0]} <= {"queen", "rook", "pawn"}  # classes are in sorted order
    assert clone(model).fit(texts, y).predict(texts).tolist() == y


@pytest.mark.parametrize(
    ("make", "documents", "error", "message"),
    [
        (
            {},
            ["boat", "no such thing here at all, whatever it may say"],
            InvalidPointError,
            r"documents\[1\] \('no su.*'",
        ),
        ({}, csr_array([[0, 1, 0, 0, 0, 0], [0] * 6]), InvalidPointError, r"documents\[1\] has no word .* 1 of 2 doc"),
        ({}, csr_array([[0, 1, 0, 0, 0, -1.0]]), InvalidPointError, r"documents\[0\] has a count of -1; counts are"),
        ({}, np.array([[np.nan, 1, 0, 0, 0, 0]]), InvalidPointError, r"documents\[0\] has a count of nan"),
        ({}, np.ones((2, 5)), ValueError, "documents has 5 columns and there are 6 vectors"),
        ({}, "boat", TypeError, "single text; give a list"),
        ({}, ["boat", 3], TypeError, r"documents\[1\] is a int"),
        ({}, [], ValueError, "there are 0 documents"),
        ({"vocabulary": None}, ["boat"], ValueError, "no vocabulary to find words"),
        ({"vocabulary": WORDS[:3]}, ["boat"], ValueError, "vocabulary has 3 words and there are 6 vectors"),
        ({"vocabulary": [*WORDS[:5], "boat"]}, ["boat"], ValueError, r"vocabulary\[0\], 'boat', occurs more than once"),
        ({"weighting": "idf"}, ["boat"], ValueError, "weighting is 'idf'; choose 'tfidf' or 'counts'"),
        ({"n_words": 0}, ["boat"], ValueError, "n_words is 0"),
        ({"vectors": np.zeros(6)}, ["boat"], ValueError, r"vectors has shape \(6,\)"),
        ({"vectors": np.full((6, 2), np.nan)}, ["ship"], InvalidPointError, r"vectors\[1\] \('ship'\) holds NaN"),
    ],
)
def test_bad_input_is_named_with_its_cure(make, documents, error, message):
    with pytest.raises(error, match=message):
        WordClouds(**{"vectors": VECTORS, "vocabulary": WORDS, **make}).fit_transform(documents)


def test_what_is_not_fitted_or_has_no_words_says_so():
    with pytest.raises(NotFittedError):
        WordClouds(VECTORS, WORDS).transform(TEXTS)
    with pytest.raises(ValueError, match="words have no names"):
        WordClouds(VECTORS).fit(np.ones((1, 6))).words_of(np.ones((1, 1, 5)))
    moved = WordClouds(VECTORS, WORDS).fit(TEXTS).set_params(vectors=VECTORS[:4], vocabulary=WORDS[:4])
    with pytest.raises(ValueError, match="was fitted with 6; fit it again"):
        moved.transform(TEXTS)


def test_vectors_that_are_a_dict_are_refused_with_what_to_give():
    given = dict(zip(WORDS, VECTORS, strict=True))
    with pytest.raises(ValueError, match=r"vectors is a dict; .*WordClouds\(keyed\.vectors, keyed\.index_to_key\)"):
        WordClouds(given).fit(TEXTS)


@pytest.mark.data
@pytest.mark.skipif("KNNPRESS_DATA" not in os.environ, reason="KNNPRESS_DATA is not set")
def test_eight_clouds_learned_from_a_tenth_of_r8_err_less_than_all_its_documents():
    path = Path(os.environ["KNNPRESS_DATA"]) / "r8_words.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    indices, indptr = (data[name].astype(np.int32) for name in ("indices", "indptr"))
    counts = csr_array((data["counts"].astype(float), indices, indptr), shape=(len(indptr) - 1, len(data["words"])))
    train, test = data["train_splits"][0][::10], data["test_splits"][0][::5]
    words, y = WordClouds(data["embeddings"], data["words"], n_words=30), data["class_names"][data["y"]]
    X, Q = words.fit_transform(counts[train]), words.transform(counts[test])
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 20}
    model = kp.SWC(8, n_points=8, **plain).fit(X, y[train])
    error = 1 - model.score(Q, y[test])
    assert error < 0.05
    assert error < 1 - kp.PrototypeClassifier("clouds").fit(X, y[train]).score(Q, y[test])
    bins = kp.PrototypeClassifier("hellinger").fit(data["H128"][train], y[train])
    assert 2 * error < 1 - bins.score(data["H128"][test], y[test])
    named = dict(zip(model.prototype_labels_, words.words_of(model.prototypes_), strict=True))
    assert "oil" in [word for word, _ in named["crude"]]
