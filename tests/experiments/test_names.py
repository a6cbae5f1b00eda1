"""One set of names, plans without a file, and mistakes in a plan as sentences."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import knnpress as kp
from knnpress import names
from knnpress.cli import main
from knnpress.experiments import load_plan, run_plan

STUDY = '[[study]]\ndata = "d"\nsource = "digits-covariances"\n'


def plan(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_plan(path)


@pytest.fixture
def photos(tmp_path, rng):
    """Two classes of coloured images: fine and coarse noise."""
    for name, step in (("fine", 1), ("coarse", 4)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(12):
            pixels = np.kron(rng.integers(0, 255, (24 // step, 24 // step, 3)), np.ones((step, step, 1)))
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{k}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("written", "known"),
    [
        *(("scc", "SCC"), ("SCC", "SCC"), ("fast-condensed", "FastCondensed"), ("FastCondensed", "FastCondensed")),
        *(("centroids", "ClassCentroids"), ("KeepAll", "full"), ("scc-paper", "SCC paper"), ("full", "full")),
    ],
)
def test_methods_of_a_plan_have_the_names_of_the_command_line_and_of_python(tmp_path, written, known):
    (study,) = plan(tmp_path, f'{STUDY}methods = ["{written}"]').studies
    assert study.methods == (known,)


@pytest.mark.parametrize("written", ['"shape-context"', '["ShapeContext"]', '[{ kind = "shape_context" }]'])
def test_descriptors_of_a_plan_have_both_names(tmp_path, written):
    (study,) = plan(tmp_path, f'{STUDY}methods = ["full"]\ndescriptor = {written}').studies
    assert study.descriptor == ({"kind": "ShapeContext"},)


def test_a_descriptor_with_settings_keeps_them(tmp_path):
    text = f'{STUDY}methods = ["full"]\ndescriptor = [{{ kind = "gabor", max_side = 64 }}, "SPDProjection"]'
    (study,) = plan(tmp_path, text).studies
    assert study.descriptor == (
        {"features": "gabor", "max_side": 64, "kind": "RegionCovariance"},
        {"kind": "SPDProjection"},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('methods = "SCC"', r"has methods = 'SCC'; give a list of names"),
        ("methods = [3]", r"has methods = \[3\]; give a list of names"),
        ('methods = ["full"]\ndescriptor = "magic"', "asks for the descriptor 'magic'; known: color-texture"),
        ('methods = ["full"]\ndescriptor = 3', r'has the descriptor 3; give a name, e.g. "shape-context"'),
        ('methods = ["full"]\nratios = 0.02', r"has ratios 0.02; give shares .*\[0.02, 0.04\]"),
        ('methods = ["full"]\ntrain_share = 0', "has train_share 0; give a share of the training points"),
        ('methods = ["full"]\nsubset = "all"', "has subset 'all'; give how many points"),
        ('methods = ["full"]\nreg = 0', "has reg 0; give a number above 0"),
        ('methods = ["full"]\nlabel_noise = 20', "has label_noise 20; give a share"),
        ('methods = ["full"]\nsettings = 3', "has settings 3; give a table for each method"),
    ],
)
def test_mistakes_in_a_plan_are_sentences(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        plan(tmp_path, STUDY + text)
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "written", "known"),
    [
        (names.DESCRIPTORS, "ShapeContext", "shape-context"),
        (names.DESCRIPTORS, "RegionCovariance", "color-texture"),
        (names.DESCRIPTORS, "ContourPoints", "contour"),
        (names.DESCRIPTORS, "gabor", "gabor"),
        (names.METHODS, "ClassCentroids", "centroids"),
        (names.METHODS, "SCC", "scc"),
        (names.METHODS, "nothing", "nothing"),
    ],
)
def test_the_command_line_knows_classes_by_name(table, written, known):
    assert names.command_name(written, table) == known


def test_a_command_takes_the_name_of_a_class(photos, tmp_path, capsys):
    for name in ("ColorHistogram", "color-histogram"):
        assert main(["describe", str(photos), "-o", str(tmp_path / f"{name}.npz"), "--descriptor", name]) == 0
    first, second = (np.load(tmp_path / f"{name}.npz")["X"] for name in ("ColorHistogram", "color-histogram"))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(SystemExit):
        main(["describe", str(photos), "-o", str(tmp_path / "x.npz"), "--descriptor", "Magic"])
    assert "'Magic' is unknown; choose from color-texture" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["color-histogram", "ColorHistogram"])
def test_python_takes_the_name_of_a_descriptor(photos, name, tmp_path):
    data = kp.datasets.load_image_folder(photos)
    clf = kp.DescriptorClassifier(name, kp.PrototypeClassifier("hellinger")).fit(data.images, data.y)
    assert type(clf.descriptors_[0]) is kp.descriptors.ColorHistogram
    clf.save(tmp_path / "m.knnp")
    assert (kp.load(tmp_path / "m.knnp").predict(data.images) == clf.predict(data.images)).all()
    with pytest.raises(ValueError, match="no descriptor 'magic'; choose one of color-texture"):
        kp.DescriptorClassifier("magic", kp.PrototypeClassifier("hellinger")).fit(data.images, data.y)


def test_a_folder_of_images_needs_no_plan(photos, tmp_path):
    made = load_plan(photos)
    (study,) = made.studies
    assert study.source == str(photos.resolve())
    assert study.descriptor == ({"features": "color-texture", "kind": "RegionCovariance"},)
    assert study.methods == ("full", "Subsample", "Condensed", "SCC")
    assert (study.n_splits, study.ratios) == (5, (0.17, 0.34))  # 24 images, 12 to learn from: 2, 4 for 2 classes
    quick = replace(made, studies=(replace(study, n_splits=1, ratios=study.ratios[:1]),))  # a page runs it as it is
    run_plan(quick, tmp_path / "results")
    assert main(["report", str(tmp_path / "results"), "-o", str(tmp_path / "r.html")]) == 0
    assert "learned covariances instead of 12:" in (tmp_path / "r.html").read_text()


def test_a_bad_image_stops_an_experiment_in_one_sentence(photos, tmp_path, capsys):
    (next(photos.glob("*")) / "a.png").write_bytes(b"no image")
    assert main(["experiment", str(photos), "-o", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err.endswith(f"; knnpress doctor {photos} names all such images\n")


def test_sizes_of_a_file_of_many_points_begin_at_two_percent(tmp_path):
    data = kp.datasets.load_digits_covariances()
    np.savez(tmp_path / "m.npz", X=data.X, y=data.y)
    assert load_plan(tmp_path / "m.npz").studies[0].ratios == (0.02, 0.04, 0.08)
    np.savez(tmp_path / "few.npz", X=data.X[:30], y=np.arange(30) % 20)
    assert load_plan(tmp_path / "few.npz").studies[0].ratios == (0.5,)


def test_a_file_of_points_needs_no_plan(tmp_path, rng):
    data = kp.datasets.load_digits_histograms()
    np.savez(tmp_path / "h.npz", X=data.X[:100], y=data.y[:100], ground_cost=data.ground_cost)
    assert load_plan(tmp_path / "h.npz").studies[0].methods[-1] == "SHC"
    np.savez(tmp_path / "m.npz", X=kp.datasets.load_digits_covariances().X[:100], y=data.y[:100])
    assert load_plan(tmp_path / "m.npz").studies[0].methods[-1] == "SCC"
    np.savez(tmp_path / "v.npz", X=rng.normal(size=(20, 3)), y=np.arange(20) % 2)
    with pytest.raises(ValueError, match="holds vectors"):
        load_plan(tmp_path / "v.npz")


def test_a_sound_folder_is_found_sound(photos, capsys):
    assert main(["doctor", str(photos)]) == 0
    out = capsys.readouterr().out
    assert "24 of 2 classes" in out
    assert "nothing is wrong with these images" in out


def spoil(photos, how):
    fine = photos / "fine"
    if how == "broken":
        (fine / "3.png").write_bytes(b"no image")
    elif how == "tiny":
        Image.fromarray(np.arange(12, dtype=np.uint8).reshape(4, 3)).save(fine / "3.png")
    elif how == "flat":
        Image.fromarray(np.full((24, 24), 7, np.uint8)).save(fine / "3.png")
    elif how == "loose":
        (photos / "3.png").write_bytes((fine / "3.png").read_bytes())
    elif how == "torn":
        (photos / "coarse" / "3.png").write_bytes((fine / "3.png").read_bytes())
    elif how == "single":
        (photos / "rare").mkdir()
        Image.fromarray(np.arange(400, dtype=np.uint8).reshape(20, 20)).save(photos / "rare" / "a.png")


@pytest.mark.parametrize(
    ("how", "what", "place"),
    [
        ("broken", "images that cannot be read", "fine/3.png"),
        ("tiny", "tiny images", "3 x 4 pixels"),
        ("flat", "images of a single colour", "fine/3.png"),
        ("loose", "images without a class", "3.png"),
        ("torn", "one image in two classes", "fine/3.png is coarse/3.png"),
        ("single", "classes of a single image", "rare"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_with_a_cure(photos, capsys, how, what, place):
    spoil(photos, how)
    assert main(["doctor", str(photos)]) == 1
    out = capsys.readouterr().out
    assert f"problem: {what}" in out
    assert place in out
    assert "cure: " in out


def test_copies_within_a_class_are_worth_a_note(photos, capsys):
    (photos / "fine" / "x.png").write_bytes((photos / "fine" / "3.png").read_bytes())
    assert main(["doctor", str(photos)]) == 0
    assert "note: copies of images" in capsys.readouterr().out
    assert main(["doctor", str(photos), "--fix", "-o", "x.npz"]) == 2
    assert "only examined" in capsys.readouterr().err
