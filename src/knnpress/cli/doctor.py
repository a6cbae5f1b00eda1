"""``knnpress doctor``: what is wrong with points or images, and how to mend it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knnpress.cli.options import add_command, add_companions, add_labels, share
from knnpress.cli.output import notice, print_facts, print_paragraph

if TYPE_CHECKING:
    from knnpress.datasets.doctor import Finding, PointSet

_ROWS = 10  # that are listed one by one


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "doctor",
        "say what is wrong with images or points and how to mend it",
        "knnpress doctor points.npz --fix -o mended.npz",
        "POINTS is a .npz, .npy or .mat file, or a zarr group; FOLDER holds a sub-folder of images for each class. The "
        "exit status is 0 where all is well, and 1 where something is wrong. Your files are never changed.",
    )
    parser.add_argument("input", type=Path, metavar="POINTS|FOLDER")
    add_labels(parser)
    add_companions(parser)
    parser.add_argument(
        "--fix", action="store_true", help="write a mended copy; with it, the exit status is the copy's"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="MENDED.npz")
    parser.add_argument(
        "--shrinkage", type=share, metavar="S", help="of all matrices of the copy (default: what is needed, if it is)"
    )


def run(args: argparse.Namespace) -> int:
    """Examine points or images; 0 where all is well, 1 where something is wrong with them (or with a mended copy)."""
    from knnpress.datasets.doctor import as_point_set, examine, mend
    from knnpress.datasets.points import read_raw_points
    from knnpress.datasets.stored import is_zarr

    if args.input.is_dir() and not is_zarr(args.input):
        return _run_folder(args)
    if args.masks is not None or args.depth is not None:
        raise ValueError(
            f"{args.input} holds points, which have no --masks and no --depth; they are for folders of images"
        )
    _check_arguments(args)
    if not args.input.exists():
        raise FileNotFoundError(f"{args.input} is not there; give a folder of images, or a file of points")
    raw = read_raw_points(args.input, args.labels)
    points, findings = as_point_set(raw)
    if points is not None:
        findings += examine(points)
        _print_points(args.input, points)
    _print_findings(findings, 0 if points is None else len(points.X))
    if not args.fix:
        return int(_any_problem(findings))
    if points is None:
        raise ValueError(f"{args.input} cannot be mended: {findings[0].what} ({findings[0].found})")
    mended = points
    for _ in range(2):  # what was hidden by one fault may show once that is gone
        mended = mend(mended, examine(mended), args.shrinkage if mended is points else None)
    if not len(mended.X):
        raise ValueError(f"{args.input} cannot be mended: no point would be left")
    left = [finding for finding in examine(mended) if finding.severity == "problem"]
    _write(args.output, mended)
    print()
    print_facts({"mended copy": str(args.output), "points": f"{len(mended.X)} of {len(points.X)}"})
    if raw.others:
        notice(f"left out of the copy: {', '.join(raw.others)}")
    if left:
        print("\nstill wrong in it")
        _print_findings(left, len(mended.X))
    return int(bool(left))


def _run_folder(args: argparse.Namespace) -> int:
    from knnpress.datasets.doctor.images import examine_images

    if args.fix or args.output is not None or args.shrinkage is not None or args.labels is not None:
        raise ValueError("a folder of images is only examined; --fix, -o, --shrinkage and --labels are for points")
    images, findings = examine_images(args.input, args.masks, args.depth)
    classes = {image.folder for image in images} - {None}
    print_facts({"folder": str(args.input), "images": f"{len(images)} of {len(classes)} classes"})
    if not _any_problem(findings):
        print("\nnothing is wrong with these images")
    for finding in findings:
        places = [str(images[row].place) for row in finding.rows[:_ROWS]]
        more = ", …" if len(finding.rows) > _ROWS else ""
        about = f"{len(finding.rows)} of {len(images)} images: {', '.join(places)}{more}" if places else ""
        lines = [about, f"found: {finding.found}", f"cure: {finding.cure}"]
        print_paragraph(finding.severity, finding.what, [line for line in lines if line])
    return int(_any_problem(findings))


def _check_arguments(args: argparse.Namespace) -> None:
    from knnpress.files import check_output

    if not args.fix:
        if args.output is not None or args.shrinkage is not None:
            raise ValueError("-o and --shrinkage are for the mended copy; add --fix")
        return
    if args.output is None:
        raise ValueError("--fix writes a mended copy; say where with -o MENDED.npz")
    if args.output.suffix != ".npz":
        raise ValueError(f"{args.output} should end in .npz")
    if args.output.exists() and args.output.samefile(args.input):
        raise ValueError(f"{args.output} is the file itself, which is never changed; give another name")
    check_output(args.output)


def _any_problem(findings: list[Finding]) -> bool:
    return any(finding.severity == "problem" for finding in findings)


def _print_points(path: Path, points: PointSet) -> None:
    import numpy as np

    facts = {
        "file": str(path),
        "points": f"{len(points.X)} {points.kind} of {' x '.join(map(str, points.X.shape[1:]))}",
    }
    if points.y is not None and len(points.y):
        names, counts = np.unique(points.y, return_counts=True)
        facts["classes"] = f"{len(names)}, of {counts.min()} to {counts.max()} points"
    print_facts(facts)


def _print_findings(findings: list[Finding], n: int) -> None:
    if not _any_problem(findings):
        print("\nnothing is wrong" + (" with these points" if n else ""))
    for finding in findings:
        about = f"{len(finding.rows)} of {n} points, rows {_rows(finding)}" if len(finding.rows) else ""
        lines = [about, f"found: {finding.found}", f"cure: {finding.cure}"]
        print_paragraph(finding.severity, finding.what, [line for line in lines if line])


def _rows(finding: Finding) -> str:
    shown = ", ".join(map(str, finding.rows[:_ROWS]))
    return f"{shown}, …" if len(finding.rows) > _ROWS else shown


def _write(path: Path, points: PointSet) -> None:
    import numpy as np

    from knnpress.files import replacing

    arrays: dict[str, Any] = {"X": points.X, "y": points.y, "row": points.row}
    arrays |= {"class_names": points.class_names, "ground_cost": points.ground_cost}
    with replacing(path) as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    sys.stdout.flush()
