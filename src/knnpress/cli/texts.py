"""Text files, for models that begin with `WordClouds`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knnpress.descriptors import WordClouds
from knnpress.estimators import DescriptorClassifier


@dataclass(frozen=True)
class Text:
    """A text file: what it says, what the user calls it, and the folder in the given one that it is in, if any."""

    words: str
    item: str
    folder: str | None


def takes_texts(model: DescriptorClassifier) -> bool:
    """Whether a model is asked about texts."""
    first = model.descriptors_[0] if model.descriptors_ else None
    return isinstance(first, WordClouds) and first.vocabulary is not None


def read_texts(
    paths: Sequence[Path], labelled: bool, descriptor: WordClouds, model_path: Path, skip_bad: bool
) -> list[Text]:
    """All .txt files of folders, and files; those of a single folder are called by their path relative to it."""
    found: list[tuple[Path, Path]] = []  # each with its place in the folder given
    for path in paths:
        if path.is_dir():
            found += [(file, file.relative_to(path)) for file in sorted(path.rglob("*.txt"))]
        elif path.suffix == ".txt" and path.is_file():
            found.append((path, Path(path.name)))
        elif not path.exists():
            raise FileNotFoundError(f"{path} is not there; give a folder of .txt files, or .txt files")
        else:
            raise ValueError(f"{model_path} takes texts; give a folder of .txt files, or .txt files, instead of {path}")
    alone = len(paths) == 1 and paths[0].is_dir()
    texts = [
        Text(_read(file), (place if alone else file).as_posix(), place.parts[0] if len(place.parts) > 1 else None)
        for file, place in found
    ]
    if not texts:
        raise ValueError(f"{', '.join(map(str, paths))} holds no .txt files, and {model_path} takes texts")
    if labelled:
        texts = [text for text in texts if text.folder is not None]
        if not texts:
            raise ValueError(f"{paths[0]} has no sub-folders to tell the classes; expected <class>/<name>.txt")
    known = descriptor.known([text.words for text in texts])
    if not known.all() and not (skip_bad and known.any()):
        strange = texts[int(known.argmin())].item
        raise ValueError(
            f"{strange} has no word that {model_path} knows, as have {(~known).sum()} of {len(texts)} texts; "
            "leave such texts out, with --skip-bad"
        )
    return [text for text, one in zip(texts, known, strict=True) if one]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from error
