"""What a fitted model says of single points: the confusion matrix, and labels to look at."""

from __future__ import annotations

from markupsafe import Markup

from knnpress.pictures import image_tag
from knnpress.report.exhibits import Suspects
from knnpress.report.read import DataSet
from knnpress.report.table import Cell, Column, Table
from knnpress.typing import Array


def suspects_table(data: DataSet, suspects: Suspects, what: str) -> Table:
    """Training points that may be mislabelled."""
    rows = []
    for row, label, guess, loss, picture in zip(
        suspects.rows, suspects.labels, suspects.predicted, suspects.losses, suspects.images, strict=True
    ):
        shown = None if picture is None else Markup(image_tag(picture, f"Training image {row}")) + str(row)
        likely = [Cell(data.class_name(label)), Cell(data.class_name(guess))]
        rows.append([Cell(str(row), (row,), html=shown), *likely, Cell(f"{loss:.2f}", (loss,))])
    return Table(
        f"{data.name}-suspects",
        "Labels to look at",
        [Column("training row"), Column("labelled as", left=True), Column("looks like", left=True), Column("−log p")],
        [("", rows)],
        note=f"Training points whose own label {what or 'ours'} finds least likely: mislabelled, or hard.",
    )


def confusion_table(data: DataSet, matrix: Array) -> Table:
    """Rows true, columns predicted."""
    names = [data.class_name(k) for k in range(len(matrix))]
    rows = [[Cell(names[i]), *(Cell(str(v), (v,)) for v in matrix[i].tolist())] for i in range(len(matrix))]
    columns = [Column("true class", left=True), *(Column(f"taken for {name}") for name in names)]
    return Table(f"{data.name}-confusion", "Confusion matrix", columns, [("", rows)])
