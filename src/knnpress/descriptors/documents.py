"""Documents as clouds of word vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from knnpress.clouds import Clouds
from knnpress.exceptions import InvalidPointError
from knnpress.parameters import brief_repr
from knnpress.typing import Array, ArrayLike

_QUOTED = 40  # letters of a text that a message quotes


class WordClouds(TransformerMixin, BaseEstimator):
    r"""A document as the cloud of the vectors of its words, weighted by how often they occur: `knnpress.Clouds`.

    With ``weighting="tfidf"`` a word that occurs c times weighs :math:`c\,(1 + \log\frac{1 + n}{1 + n_w})`, where
    :math:`n_w` of the n training documents have it: as scikit-learn's `TfidfTransformer` does before it scales rows.

    Parameters
    ----------
    vectors : array of shape (n_vocabulary, d)
        Of the words: word2vec, GloVe, fastText, or rows of a language model's embedding. Of gensim's KeyedVectors they
        are ``vectors``, and the words ``index_to_key``. Scaled to length one they are compared by direction, as is
        usual.
    vocabulary : sequence of n_vocabulary str, or None
        The words. None: documents are given as counts, and no words can be shown.
    weighting : {"tfidf", "counts"}
    n_words : int or None
        The most words of a document that are kept, the heaviest ones; None: all. Long documents are the slow ones.
    lowercase : bool
        Whether texts are put in lower case first. Choose what the vocabulary is written in.
    stop_words : {"english"}, list of str or None
        Words that are left out of texts.

    Attributes
    ----------
    n_documents_ : int
        That were fitted.
    document_counts_ : ndarray of shape (n_vocabulary,)
        How many of them have each word.

    Examples
    --------
    >>> from knnpress.descriptors import WordClouds
    >>> words = WordClouds([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["boat", "ship", "queen"], weighting="counts")
    >>> clouds = words.fit_transform(["A boat is no ship, and a boat floats.", "The queen takes."])
    >>> clouds
    Clouds(2 clouds of 1 to 2 points in 2 dimensions)
    >>> [(word, round(weight, 2)) for word, weight in words.words_of(clouds)[0]]
    [('boat', 0.67), ('ship', 0.33)]
    """

    def __init__(
        self,
        vectors: ArrayLike,
        vocabulary: Sequence[str] | None = None,
        *,
        weighting: Literal["tfidf", "counts"] = "tfidf",
        n_words: int | None = None,
        lowercase: bool = True,
        stop_words: Literal["english"] | list[str] | None = None,
    ) -> None:
        self.vectors = vectors
        self.vocabulary = vocabulary
        self.weighting = weighting
        self.n_words = n_words
        self.lowercase = lowercase
        self.stop_words = stop_words

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """As scikit-learn has it, but with the shape of the vectors for their numbers."""
        return brief_repr(self, N_CHAR_MAX)

    def fit(self, documents: Any, y: Any = None) -> WordClouds:
        """Count in how many of n documents (see `transform`) each word occurs."""
        counts = self._counts(documents)
        self.n_documents_: int = counts.shape[0]
        self.document_counts_ = np.bincount(counts.indices, minlength=counts.shape[1])
        return self

    def transform(self, documents: Any) -> Clouds:
        """Clouds of n documents.

        Parameters
        ----------
        documents : sequence of str, or matrix of shape (n, n_vocabulary)
            Texts; or how often each word of the vocabulary occurs, dense or sparse. Each must have at least one word
            of the vocabulary: `known` tells which have.
        """
        check_is_fitted(self)
        counts = self._counts(documents)
        if len(self.document_counts_) != counts.shape[1]:
            raise ValueError(
                f"there are {counts.shape[1]} vectors and WordClouds was fitted with {len(self.document_counts_)}; fit "
                "it again"
            )
        empty = np.flatnonzero(np.diff(counts.indptr) == 0)
        if len(empty):
            raise InvalidPointError(
                f"documents[{empty[0]}]{_quoted(documents, empty[0])} has no word of the vocabulary, as have "
                f"{len(empty)} of {counts.shape[0]} documents; leave them out (known(documents) tells which have one) "
                "or add their words"
            )
        if self.weighting == "tfidf":
            idf = 1.0 + np.log((1.0 + self.n_documents_) / (1.0 + self.document_counts_))
            counts.data *= idf[counts.indices]
        if self.n_words is not None:
            counts = _heaviest(counts, self.n_words)
        used, columns = np.unique(counts.indices, return_inverse=True)
        # of a large vocabulary only the words that occur are kept with the clouds
        small = csr_array((counts.data, columns, counts.indptr), shape=(counts.shape[0], len(used)))
        vectors = np.asarray(self.vectors)[used].astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            word = used[bad[0]]
            name = f" ({str(self.vocabulary[word])!r})" if self.vocabulary is not None else ""
            raise InvalidPointError(f"vectors[{word}]{name} holds NaN or infinity; leave that word out")
        return Clouds.from_csr(small, vectors)

    def known(self, documents: Any) -> Array:
        """Which of n documents have a word of the vocabulary, (n,) of bool."""
        return np.diff(self._counts(documents).indptr) > 0

    def words_of(self, clouds: Any, n_words: int = 10) -> list[list[tuple[str, float]]]:
        """What clouds, such as learned prototypes, stand for: the nearest words to their points, with their weights.

        Only words that fitted documents have are named. Points whose nearest word is the same count as one.

        Parameters
        ----------
        clouds : Clouds, or array of shape (m, k, d + 1)
            With weights in the last column, as ``SWC.prototypes_`` are.
        n_words : int
            At most this many for each cloud, the heaviest first.
        """
        check_is_fitted(self)
        if self.vocabulary is None:
            raise ValueError("there is no vocabulary, so words have no names; give WordClouds(vectors, vocabulary)")
        seen = np.flatnonzero(self.document_counts_)
        vectors = np.asarray(self.vectors, dtype=np.float64)[seen]
        halves = 0.5 * np.einsum("vk,vk->v", vectors, vectors)
        named = []
        for points, weights in _each(clouds):
            nearest = (points @ vectors.T - halves).argmax(axis=1)
            mass = np.bincount(nearest, weights, minlength=len(seen))
            order = np.argsort(-mass, kind="stable")[:n_words]
            named.append([(str(self.vocabulary[seen[w]]), float(mass[w])) for w in order if mass[w] > 0])
        return named

    def _counts(self, documents: Any) -> Any:
        """Counts of words, a sparse (n, n_vocabulary) of float64 without zeros: a copy."""
        size = self._check_settings()
        if isinstance(documents, (str, bytes, os.PathLike)):
            raise TypeError("documents is a single text; give a list of texts, even for one")
        if issparse(documents) or (isinstance(documents, np.ndarray) and documents.ndim == 2):
            matrix = csr_array(documents, dtype=np.float64, copy=True)
            if matrix.shape[1] != size:
                raise ValueError(
                    f"documents has {matrix.shape[1]} columns and there are {size} vectors; give a column for each word"
                )
            bad = np.flatnonzero(~(np.isfinite(matrix.data) & (matrix.data >= 0)))
            if len(bad):
                row = int(np.searchsorted(matrix.indptr, bad[0], "right")) - 1
                raise InvalidPointError(
                    f"documents[{row}] has a count of {matrix.data[bad[0]]:g}; counts are 0 or positive"
                )
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        else:
            matrix = self._count_texts(list(documents))
        if matrix.shape[0] == 0:
            raise ValueError("there are 0 documents; give at least one")
        return matrix

    def _count_texts(self, texts: list[Any]) -> Any:
        if self.vocabulary is None:
            raise ValueError(
                "there is no vocabulary to find words of texts in; give WordClouds(vectors, vocabulary), or counts"
            )
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"documents[{i}] is a {type(text).__name__}; give texts, or one matrix of counts")
        if not texts:
            raise ValueError("there are 0 documents; give at least one")
        columns = {str(word): k for k, word in enumerate(self.vocabulary)}
        counter = CountVectorizer(vocabulary=columns, lowercase=self.lowercase, stop_words=self.stop_words)
        return csr_array(counter.transform(texts), dtype=np.float64)

    def _check_settings(self) -> int:
        """Number of words of the vocabulary."""
        shape = np.shape(self.vectors)
        if shape == ():
            raise ValueError(
                f"vectors is a {type(self.vectors).__name__}; give an array (n_vocabulary, n_dims) and the words, "
                "e.g. of gensim's: WordClouds(keyed.vectors, keyed.index_to_key)"
            )
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"vectors has shape {shape}; expected (n_vocabulary, n_dims)")
        if self.weighting not in ("tfidf", "counts"):
            raise ValueError(f"weighting is {self.weighting!r}; choose 'tfidf' or 'counts'")
        if self.n_words is not None and (
            isinstance(self.n_words, bool) or not isinstance(self.n_words, (int, np.integer)) or self.n_words < 1
        ):
            raise ValueError(f"n_words is {self.n_words!r}; give a count of at least 1, or None for all words")
        if self.vocabulary is not None:
            if len(self.vocabulary) != shape[0]:
                raise ValueError(
                    f"vocabulary has {len(self.vocabulary)} words and there are {shape[0]} vectors; give one for each"
                )
            words, first, times = np.unique(np.asarray(self.vocabulary, dtype=str), True, return_counts=True)
            if len(words) < shape[0]:
                twice = int(first[times > 1][0])
                raise ValueError(
                    f"vocabulary[{twice}], {str(self.vocabulary[twice])!r}, occurs more than once; remove its copies"
                )
        return int(shape[0])


def _each(clouds: Any) -> Any:
    """Points and weights of each cloud."""
    if isinstance(clouds, Clouds):
        return clouds
    return ((one[:, :-1], one[:, -1]) for one in np.asarray(clouds, dtype=np.float64))


def _heaviest(counts: Any, most: int) -> Any:
    """The largest entries of each row, at most `most`; the first ones where they are equal."""
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((-counts.data, row))  # rows stay in place
    rank = np.arange(len(order)) - counts.indptr[row]
    kept = np.sort(order[rank < most])
    return csr_array((counts.data[kept], (row[kept], counts.indices[kept])), shape=counts.shape)


def _quoted(documents: Any, row: int) -> str:
    if issparse(documents) or isinstance(documents, np.ndarray):
        return ""
    text = str(documents[row])
    return f" ({text[:_QUOTED]!r}{'…' * (len(text) > _QUOTED)})"
