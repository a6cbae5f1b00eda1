"""Plans: what they contain, and what is refused."""

import pytest

from knnpress.experiments import load_plan, plan_names
from knnpress.experiments.methods import METHODS

STUDY = 'data = "d"\nsource = "digits-covariances"\nmethods = ["full", "Subsample", "Condensed"]\n'


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", plan_names())
def test_the_plans_that_ship_can_be_read_and_name_every_run_once(name):
    plan = load_plan(name)
    ids = [cell.id for cell in plan.cells()]
    assert len(ids) == len(set(ids)) > 50
    assert all(cell.method in METHODS for cell in plan.cells())


def test_the_paper_plan_has_every_data_set_with_all_methods_at_four_sizes():
    plain = [study for study in load_plan("paper").studies if not study.variant]
    digits = {"digits covariances", "digits histograms"}
    papers = {"eth80", "scene15", "kth", "fpha", "coil20", "mpeg7", "kylberg"}
    assert {study.data for study in plain} == papers | digits
    for study in plain:
        learned = {"SCC", "SCC jbld", "SCC paper"} if "SCC" in study.methods else {"SHC", "SHC sinkhorn", "SHC paper"}
        assert {"full", "Subsample", "Condensed", "Reduced", "FastCondensed", "RandomMutation"} | learned <= {
            *study.methods,
            *study.once,
        }
        assert len(study.ratios) == 4


def test_runs_of_a_study(tmp_path):
    plan = load_plan(written(tmp_path, f'seed = 3\n[[study]]\n{STUDY}n_splits = 2\nratios = [0.1]\nonce = ["MDM"]'))
    assert plan.seed == 3
    assert [cell.id for cell in plan.cells()] == [
        "d / 0 / full",
        "d / 0 / Subsample 0.1",
        "d / 0 / Condensed 0.1",
        "d / 0 / Condensed",
        "d / 0 / MDM",
        "d / 1 / full",
        "d / 1 / Subsample 0.1",
        "d / 1 / Condensed 0.1",
        "d / 1 / Condensed",
    ]


def test_groups_are_given_where_whole_groups_are_held_out():
    told = {study.name for name in plan_names() for study in load_plan(name).studies if "SCC groups" in study.methods}
    assert told == {"eth80 by object", "kth"}


def test_more_runs_are_the_same_plan_and_other_points_are_not(tmp_path):
    prints = [
        load_plan(written(tmp_path, f"{head}\n[[study]]\n{STUDY}{more}")).fingerprint
        for head, more in [
            ("", ""),
            ('title = "T"', "n_splits = 9\nratios = [0.5]"),
            ("seed = 1", ""),
            ("", "subset = 100"),
            ("", "label_noise = 0.1"),
        ]
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4


def test_paths_are_relative_to_the_plan(tmp_path):
    (tmp_path / "points.npz").write_bytes(b"")
    plan = load_plan(written(tmp_path, '[[study]]\ndata = "d"\nsource = "points.npz"\nmethods = ["full"]'))
    assert plan.studies[0].source == str((tmp_path / "points.npz").resolve())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no \\[\\[study\\]\\]"),
        ("a = ", "is not TOML"),
        ("speed = 3", "says speed, which means nothing"),
        (f"[[study]]\n{STUDY}colour = 1", "says colour; a study knows"),
        ('[[study]]\ndata = "d"', "lacks methods, source"),
        ('[[study]]\ndata = "d"\nsource = "s"\nmethods = ["Magic"]', "asks for 'Magic'; known methods: full"),
        (
            '[[study]]\ndata = "d"\nsource = "s"\nmethods = ["SCC groups"]',
            "'SCC groups', but its splits, 'half', know no groups; choose 'half by GROUP'",
        ),
        (f"[[study]]\n{STUDY}ratios = [2.0]", "ratios \\[2.0\\]; give shares"),
        (f"[[study]]\n{STUDY}n_splits = 0", "n_splits 0; give 1 to 10000"),
        ('[[study]]\ndata = 3\nsource = "s"\nmethods = ["full"]', "data = 3; give text"),
        (f"[[study]]\n{STUDY}[[study]]\n{STUDY}", "two studies 'd'; give one of them a variant"),
    ],
)
def test_bad_plans_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_plan(written(tmp_path, text))


def test_an_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(ValueError, match=r"no plan 'nothing'; choose .*digits"):
        load_plan("nothing")
    with pytest.raises(FileNotFoundError):
        load_plan(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("head", "settings", "message"),
    [
        ("seed = 1e400", "", r"seed = inf; give a whole number from 0 to 2\*\*32 - 1"),
        ("seed = -1", "", r"seed = -1; give a whole number"),
        ("seed = 1.7", "", r"seed = 1.7; give a whole number"),
        ('seed = "a"', "", r"seed = 'a'; give a whole number"),
        ('include = "eth80"', "", r"include = 'eth80'; give a list of plans"),
        ("", "ratios = []", r"has ratios \[\]; give shares"),
        ("", 'splits = "-3 a class"', r"splits '-3 a class'; give how many points of each class"),
        ("", 'splits = "0 a class"', r"splits '0 a class'; give how many points of each class"),
        ("", "settings = { Nope = { a = 1 } }", r"settings for 'Nope'; known methods: full"),
        (
            "",
            'descriptor = { kind = "RegionCovariance", nope = 1 }',
            r"'nope' for RegionCovariance, which has features",
        ),
        ("", 'descriptor = "WordClouds"', r"'WordClouds', which does not turn images into matrices or histograms"),
        ("", 'descriptor = "local-features"', r"'LocalFeatures', which does not turn images"),
        ("", 'descriptor = "ImageFile"', r"'ImageFile', which does not turn images"),
    ],
)
def test_nonsense_in_a_plan_is_named_with_the_cure(head, settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_plan(written(tmp_path, f"{head}\n[[study]]\n{STUDY}{settings}\n"))


def test_a_study_in_single_brackets_is_told_the_right_ones(tmp_path):
    with pytest.raises(ValueError, match=r"write \[\[study\]\]"):
        load_plan(written(tmp_path, f"[study]\n{STUDY}"))
