"""Tables and numbers as C99."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files

import numpy as np

from knnpress.export.geometry_tables import LANES
from knnpress.export.tables import DOUBLES, Exported
from knnpress.typing import Array

_WIDTH = 116  # of a line of numbers
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;+()[]=%")
_WHOLE = ("D", "M", "P", "T", "GROUP", "WIDTH", "MAX_ITER", "NEIGHBOURS")
_TOP = """\
/* A classifier under the geometry "{geometry}", exported by knnpress {version}: {m} prototypes of {n_classes} classes.

   int knnpress_predict(const double *x, double *probabilities);{window}

   x: {point}.
   Returns the index of a class, whose name is in knnpress_classes, or -1 where x is not a valid point.
   probabilities: NULL, or room for KNNPRESS_N_CLASSES numbers, which are set unless -1 is returned.

   C99 and C++17, libm only. Nothing is allocated and nothing global is written: any number of threads may call it.
   Working memory: {stack} bytes of stack, beside those of libm. Tables: {flash} bytes, constant.
   {precision}{solver}{notes} */
"""
_POINTS = {
    "vector": "a vector of {d} numbers",
    "roots": "a histogram of {d} bins, not negative; it need not sum to one",
    "sinkhorn": "a histogram of {d} bins, not negative; it need not sum to one",
    "logarithm": "a symmetric positive definite matrix, {d} by {d}, whole",
    "jbld": "a symmetric positive definite matrix, {d} by {d}, whole",
}
_DECLARATIONS = """\
#ifdef __cplusplus
extern "C" {{
#endif
extern const char knnpress_version[];
extern const char *const knnpress_classes[KNNPRESS_N_CLASSES];
int knnpress_predict(const double *x, double *probabilities);
{window}#ifdef __cplusplus
}}
#endif
"""
_WINDOW = "int knnpress_predict_window(const double *samples, int n_samples, double *probabilities);\n"
_ABOUT_WINDOW = f"""
   {_WINDOW}
   samples: of {{d}} channels, n_samples of each (at least 2), one channel after the other. Their covariance is taken as
   SignalCovariance("{{window}}") does, and then as x."""
_PREDICT = {
    "vector": "kp_check(x, point) && kp_vote_all(point, &votes)",
    "roots": "kp_check(x, point) && (kp_embed(point, vector), kp_vote_all(vector, &votes))",
    "sinkhorn": "kp_check(x, point) && kp_vote_all(point, &votes)",
    "logarithm": "kp_check(x, point, factor) && (kp_embed(factor, vector), kp_vote_all(vector, &votes))",
    "jbld": "kp_check(x, point, factor) && kp_vote_all(point, &votes)",
}
_ROOM = {
    "vector": "double point[KP_D];",
    "roots": "double point[KP_D], vector[KP_P];",
    "sinkhorn": "double point[KP_D];",
    "logarithm": "double point[KP_D * (KP_D + 1) / 2], factor[KP_D * (KP_D + 1) / 2], vector[KP_P];",
    "jbld": "double point[KP_T], factor[KP_T];",
}
_AGAIN = """\
  if (winner == KP_UNSURE) {
    kp_open(&votes, 1);
    kp_vote_all(point, &votes);
    winner = kp_close(&votes, probabilities);
  }
"""
#: The files of `c/` that a kind is made of, after the vote
_PARTS = {
    "vector": ("vector", "distance"),
    "roots": ("histogram", "roots", "distance"),
    "sinkhorn": ("histogram", "sinkhorn"),
    "logarithm": ("spd", "logarithm", "distance"),
    "jbld": ("spd", "jbld"),
}


def c_source(facts: Exported, *, header: bool) -> str:
    """The text of a C file, or of a header that holds the code too."""
    parts = [_top(facts)]
    if header:
        parts.append("#ifndef KNNPRESS_MODEL_H\n#define KNNPRESS_MODEL_H\n")
    parts.append(f"#define KNNPRESS_POINT_SIZE {facts.point_size}\n#define KNNPRESS_N_CLASSES {len(facts.classes)}\n")
    parts.append(_DECLARATIONS.format(window=_WINDOW if facts.window else ""))
    if header:
        parts.append("#endif\n\n#if defined(KNNPRESS_IMPLEMENTATION) && !defined(KNNPRESS_IMPLEMENTED)")
        parts.append("#define KNNPRESS_IMPLEMENTED")
    parts += [_settings(facts), _names(facts), *_tables(facts), *_code(facts), _predict(facts)]
    if facts.window:
        parts.append(_part("window"))
    if header:
        parts.append("#endif\n")
    return "\n".join(parts)


def c_string(text: str) -> str:
    """A C string literal; whatever a compiler could take for something else is written as its code."""
    data = text.encode("utf-8", errors="backslashreplace")
    return '"' + "".join(chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}" for byte in data) + '"'


def stack_bytes(facts: Exported) -> int:
    """What the arrays of a call take, and some room for what the compiler adds."""
    n, d, real = len(facts.classes), facts.d, 8 if facts.dtype == "float64" else 4
    p, width, t = (int(facts.numbers.get(name, 0)) for name in ("P", "WIDTH", "T"))
    triangle = d * (d + 1) // 2
    vote = 16 * int(facts.numbers["NEIGHBOURS"]) + 4 * n if facts.votes else 32 * n
    own = {
        "vector": 8 * d + real * p,
        "roots": 8 * d + 8 * p + real * p,
        "sinkhorn": 8 * d + 10 * real * width + 8 * d + (24 * d if "TRANSPORT" in facts.flags else 0),
        "logarithm": 16 * triangle + 8 * p + max(8 * (d + 2) * (d + 3) + 8 * d, real * p),
        "jbld": 16 * triangle + 8 * d + real * (t + LANES * (t + d)),
    }[facts.kind]
    window = 8 * d * d + 8 * d if facts.window else 0
    return -(-(own + vote + window + 768) // 64) * 64


def _top(facts: Exported) -> str:
    single = facts.dtype == "float32"
    precision = (
        "The query is checked and prepared in double precision, and compared with the prototypes in single precision."
        if single
        else "All arithmetic is in double precision."
    )
    solver = ""
    if facts.kind == "sinkhorn":
        most, tol = int(facts.numbers["MAX_ITER"]), facts.numbers["TOL"]
        solver = (
            f"\n   Each transport problem takes at most {most} iterations, until its marginals are met to {tol:g} (L1),"
            "\n   or less closely as the prototype is farther and weighs less."
        )
    sizes = [(8 if name in DOUBLES or not single else 4) * table.size for name, table in facts.tables.items()]
    return _TOP.format(
        geometry=facts.geometry,
        version=c_string(version("knnpress"))[1:-1],
        m=len(facts.labels),
        n_classes=len(facts.classes),
        point=_POINTS[facts.kind].format(d=facts.d) + (", row by row" if facts.point_size > facts.d else ""),
        stack=f"{stack_bytes(facts):,}",
        flash=f"{sum(sizes) + np.dtype(_label_type(facts)[1]).itemsize * len(facts.labels):,}",
        precision=precision,
        solver=solver,
        window=_ABOUT_WINDOW.format(d=facts.d, window=facts.window) if facts.window else "",
        notes="".join(f"\n   {c_string(note)[1:-1]}" for note in facts.notes),
    )


def _settings(facts: Exported) -> str:
    single = facts.dtype == "float32"
    lines = [
        "#if defined(__FAST_MATH__)",
        '#error "compile without -ffast-math: it could no longer tell NaN and infinity"',
        "#endif",
        "#include <float.h>",
        "#include <math.h>",
        "",
        f"typedef {'float' if single else 'double'} kp_real;",
        f"#define KP_LANES {LANES}",
    ]
    used = {"jbld": ("log",), "sinkhorn": ("log", "abs")}.get(facts.kind, ())
    names = {"log": ("log", "logf"), "abs": ("fabs", "fabsf")}
    lines += [f"#define kp_{name}(x) {names[name][single]}(x)" for name in used]
    for name, value in facts.numbers.items():
        lines.append(f"#define KP_{name} {int(value) if name in _WHOLE else repr(float(value))}")
    if facts.kind == "sinkhorn":
        lines.append(f"#define KP_MOST {'1e30f' if single else '1e100'}")
        lines.append(f"#define KP_KERNEL_T {'kp_kernel_t' if 'ASYMMETRIC' in facts.flags else 'kp_kernel'}")
    window = {facts.window.upper()} if facts.window else set()
    lines += [f"#define KP_{flag}" for flag in sorted(facts.flags | window)]
    return "\n".join(lines) + "\n"


def _names(facts: Exported) -> str:
    empty = next((name for name in facts.classes if "\0" in name), None)
    if empty is not None:
        raise ValueError(f"the class {empty!r} holds a NUL, where a C string would end; rename it")
    names = ",\n".join(f"  {c_string(name)}" for name in facts.classes)
    return (
        f"const char knnpress_version[] = {c_string(version('knnpress'))};\n"
        f"const char *const knnpress_classes[KNNPRESS_N_CLASSES] = {{\n{names}\n}};\n"
    )


def _label_type(facts: Exported) -> tuple[str, str]:
    n = len(facts.classes)
    return ("unsigned char", "u1") if n <= 256 else ("unsigned short", "u2") if n <= 65536 else ("int", "i4")


def _tables(facts: Exported) -> list[str]:
    single = facts.dtype == "float32"
    tables = [_table(_label_type(facts)[0], "label", [str(label) for label in facts.labels.tolist()])]
    for name, table in facts.tables.items():
        tables.append(_number_table(name, table, single and name not in DOUBLES))
    return tables


def _number_table(name: str, table: Array, single: bool) -> str:
    flat = table.reshape(-1)
    if not single:
        return _table("double", name, [repr(value) for value in flat.tolist()])
    with np.errstate(under="ignore"):
        return _table("float", name, [f"{value!s}f" for value in flat.astype(np.float32)])


def _table(kind: str, name: str, items: list[str]) -> str:
    lines, line = [], " "
    for item in items:
        if len(line) + len(item) + 2 > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {item},"
    return f"static const {kind} kp_{name}[{len(items)}] = {{\n" + "\n".join([*lines, line.rstrip(",")]) + "\n};\n"


def _code(facts: Exported) -> list[str]:
    vote = "neighbours" if facts.votes else "scores"
    limited = facts.kind == "sinkhorn" and "TRANSPORT" not in facts.flags
    names = [vote, *([f"{vote}_limit"] if limited else []), *_PARTS[facts.kind]]
    return [_part(name) for name in names]


def _part(name: str) -> str:
    return files("knnpress.export").joinpath("c", f"{name}.c").read_text(encoding="ascii").strip("\n") + "\n"


def _predict(facts: Exported) -> str:
    predicted = _PREDICT[facts.kind]
    if facts.kind == "jbld" and "REJECT" in facts.flags:
        predicted = "kp_check(x, point, factor) && (kp_own(factor, &votes), kp_vote_all(point, &votes))"
    again = _AGAIN if facts.kind == "sinkhorn" and "SOFT" in facts.flags else ""
    return f"""\
int knnpress_predict(const double *x, double *probabilities) {{
  {_ROOM[facts.kind]}
  kp_votes votes;
  int winner;
  kp_open(&votes, probabilities != 0);
  winner = {predicted} ? kp_close(&votes, probabilities) : -1;
{again}  return winner;
}}
"""
