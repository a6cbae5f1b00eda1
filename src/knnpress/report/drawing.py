"""A box to draw a digit in, and the model that answers it in the page itself."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["DRAWN_PIXELS", "drawing_box", "drawing_script"]

#: Of the 8 x 8 grid that a drawing is reduced to
DRAWN_PIXELS = 64


def drawing_box() -> str:
    """The box, as HTML; without JavaScript it is not shown."""
    return (
        '<figure class="drawing" hidden><h3>Draw a digit, and the learned histograms answer</h3><div class="desk">'
        '<canvas class="pad" width="320" height="320" tabindex="0" role="application" '
        'aria-label="Draw a digit here. With the keyboard: arrow keys move the pen, space lowers and lifts it.">'
        '</canvas><div class="reply"><p class="answer" role="status">Draw one large digit.</p>'
        '<ol class="chances"></ol><div class="buttons"><button type="button" class="key clear">'
        '<span>Clear</span></button><span class="seen-by"><canvas class="seen" width="8" height="8" role="img" '
        'aria-label="The drawing as the model sees it: 8 by 8 pixels"></canvas> as the model sees it</span></div></div>'
        "</div><figcaption>The drawing is made as large as the digits of the data, and its ink is counted in 8 × 8 "
        "squares, as theirs was. All is computed in this page, by the model that <code>knnpress export --to js</code> "
        "writes.</figcaption></figure>"
    )


def drawing_script(model: str) -> str:
    """The program behind the box: a model as `js_source` writes it, and the pen."""
    return model + files("knnpress.report").joinpath("drawing.js").read_text(encoding="ascii")
