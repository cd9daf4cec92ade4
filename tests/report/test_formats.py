"""Formats for scripts are complete and exact, those for papers compile, frames are tidy, figures say what they show."""

import csv
import io
import json
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from made_runs import make, study
from rich.console import Console

import fedpick as fp
from fedpick.core import errors
from fedpick.report import plots


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    def curve(policy, seed):
        better = 0.1 + 0.002 * (7 * seed % 3) if policy == "fedcs" else 0.05 * (seed % 2)  # clear, and not
        return [None, 0.3, None, 0.5, None, 0.6 + 0.01 * seed + (better if policy != "uniform" else 0.0)]

    return fp.load(study(tmp_path_factory.mktemp("runs"), seeds=5, curve=curve), reference="uniform")


def test_csv_has_every_score_in_full(results):
    rows = list(csv.DictReader(io.StringIO(results.table("csv"))))
    data = {each["policy"]: each for each in results.data()["rows"]}
    assert len(rows) == sum(len(each["scores"]) for each in data.values())
    for line in rows:
        score = data[line["policy"]]["scores"][line["score"]]
        assert float(line["mean"]) == score["mean"]
        assert [float(value) for value in line["values"].split()] == score["values"]
        assert [int(seed) for seed in line["seeds"].split()] == [0, 1, 2, 3, 4]
        if "difference" in score:
            assert float(line["difference_mean"]) == score["difference"]["mean"]
            assert float(line["difference_low"]) == score["difference"]["low"]
            assert line["difference_clear"] == str(score["difference"]["clear"])
        else:
            assert line["difference_mean"] == ""


def test_json_is_strict_and_the_same_as_the_data(results):
    text = results.table("json")
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == results.data()
    row = results.data()["rows"][1]
    assert row["policy"] == "e3cs(quota=0.5)"
    assert {"world", "cohort_size", "data", "train", "engine", "oracle", "seeds", "rounds", "folders"} <= set(row)
    assert len(row["scores"]["accuracy"]["values"]) == 5


def test_markdown_is_a_pipe_table(results):
    lines = [line for line in results.table("markdown").splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3
    assert len({line.count("|") for line in lines}) == 1
    assert "**+" in lines[-1]  # a clear difference


def test_latex_has_booktabs_and_even_rows(results):
    text = results.table("latex")
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\textbf{", r"$\pm$"):
        assert word in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in body}) == 1
    columns = text.split(r"\begin{tabular}{")[1].split("}")[0]
    assert body[0].count("&") == len(columns) - 1


def test_an_unknown_format_suggests_the_nearest(results):
    with pytest.raises(fp.UnknownNameError, match="did you mean 'markdown'"):
        results.table("markdwon")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_terminal_gets_what_fits(results, width):
    out = io.StringIO()
    Console(file=out, width=width).print(results.table())
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "e3cs(quota=0.5)" in out.getvalue()
    again = io.StringIO()
    Console(file=again, width=width).print(results)
    assert again.getvalue() == out.getvalue()


def test_bold_says_clear(results):
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=True, color_system="truecolor").print(results.table())
    assert re.search(r"\x1b\[1m *\+0\.\d+ ±[\d.]+\*\x1b", out.getvalue())  # fedcs
    assert re.search(r"\x1b\[2m *\+0\.\d+ ±[\d.]+ ?\x1b", out.getvalue())  # e3cs


def test_names_from_manifests_do_no_harm(tmp_path):
    name = "<b>|x_&%$#{}~^\\[red]\x1b[2J"
    results = fp.load(make(tmp_path / "run", name))
    out = io.StringIO()
    Console(file=out, width=200).print(results.table())
    assert "\x1b" not in out.getvalue()
    assert "[red]" in out.getvalue()
    assert "&lt;b&gt;" in results._repr_html_()
    assert "<b>" not in results._repr_html_()
    line = next(line for line in results.table("markdown").splitlines() if "red" in line)
    assert line.replace(r"\|", "").count("|") == results.table("markdown").splitlines()[2].count("|")
    assert r"\_\&\%\$\#\{\}" in results.table("latex")
    results.plot().savefig(io.BytesIO())


HARMFUL = (  # of a terminal, a spreadsheet and a file
    *(
        "\x1b[2Jx",
        "\x1b]0;owned\x07",
        "\x1b]8;;http://x.example\x1b\\here",
        "\x9b31m",
        "a\rb",
        "a\nb",
        "\ud800",
        "\u202eabc",
    ),
    *('=HYPERLINK("http://x.example")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(1+1)", "\t=1+1", "\r=1+1"),
)


@pytest.mark.parametrize("name", HARMFUL)
def test_no_name_is_a_terminal_s_command_or_a_spreadsheet_s_formula(tmp_path, name):
    about = {"policy": name, "world": name, "data": name, "train": name, "engine": "simulator", "num_clients": 12}
    metric = errors.printable(name)  # others cannot be written
    for seed in (0, 1):
        make(tmp_path / f"a{seed}", "uniform", seed, about=about, metrics=[{metric: 0.5}] * 6)
        make(tmp_path / f"b{seed}", "fedcs", seed, about={**about, "policy": "fedcs"}, metrics=[{metric: 0.5}] * 6)
    results = fp.load(tmp_path, target={metric: 0.4}, metric=metric)
    for format in ("text", "markdown", "csv", "json", "latex", "methods", "bibtex"):
        text = results.table(format)
        assert text.replace("\n", "").isprintable(), format
    rows = list(csv.DictReader(io.StringIO(results.table("csv"))))
    names = [row[key] for row in rows for key in ("policy", "world", "data", "train", "score", "target_metric")]
    assert len([text for text in names if text.lstrip("'?") == metric.lstrip("?")]) >= 6
    assert not [text for text in names if text[:1] in tuple("=+-@\t\r")]
    assert {row["difference_to"][:1] for row in rows} & set("=+-@") == set()
    frame = results.frame()
    assert all(text.isprintable() for text in frame["policy"])
    assert len(results.rounds()) == 24
    page = results.page()
    assert page.replace("\n", "").isprintable()


def test_numbers_below_zero_stay_numbers_in_csv(tmp_path):
    make(tmp_path / "run", metrics=[{"score": -0.25}] * 6)
    rows = list(csv.DictReader(io.StringIO(fp.load(tmp_path / "run").table("csv"))))
    (row,) = [row for row in rows if row["score"] == "score"]
    assert (float(row["mean"]), row["values"]) == (-0.25, "-0.25")


def test_metrics_with_the_names_of_a_frame_s_columns_are_renamed(tmp_path):
    found = {"policy": 0.1, "metric_policy": 0.2, "seed": 0.3, "returned": 0.4, "f1": 0.5}
    results = fp.load(make(tmp_path / "run", metrics=[found] * 6))
    shown = {"metric_metric_policy": 0.1, "metric_policy": 0.2, "metric_seed": 0.3, "metric_returned": 0.4, "f1": 0.5}
    for frame in (results.frame(), results.rounds()):
        assert {name: frame[name].iloc[-1] for name in shown} == shown
        assert frame["policy"].tolist() == ["uniform"] * len(frame)


def test_data_that_a_manifest_only_claims_is_named_and_looked_up_nowhere(tmp_path):
    about = {"world": "volatile", "num_clients": 12, "train": "", "engine": "simulator", "data": "mnist"}
    text = fp.load(make(tmp_path / "run", about=about)).table("methods")
    assert "the clients train on \\texttt{mnist}" in text


def test_a_paragraph_on_trained_models_needs_no_jax(tmp_path):
    about = {"world": "volatile", "num_clients": 12, "train": "", "engine": "simulator", "data": "mnist"}
    make(tmp_path / "run", about=about, data={"name": "mnist"}, accuracy=[0.5] * 6)
    code = "import sys, fedpick as fp\nprint(fp.load(sys.argv[1]).table('methods'), 'jax' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert r"settings \texttt{model=mlp(hidden=(200, 200)), lr=0.05, batch=64, steps=30}" in ended.stdout
    assert ended.stdout.endswith(" False\n")


@pytest.mark.parametrize("number", [-1, 10**9, 10**400, float("inf"), float("nan"), "many", [1]])
def test_a_manifest_that_claims_impossible_numbers_of_clients_is_refused(tmp_path, number):
    about = {"world": "w", "num_clients": number, "train": "", "engine": "simulator", "data": None}
    with pytest.raises(fp.StoreError, match=r"its manifest.json is not a run's \(\w+: .*\); restore"):
        fp.load(make(tmp_path / "run", about=about))


def test_seeds_far_apart_are_named_without_counting(tmp_path):
    for seed in (0, 1, 2**62):
        make(tmp_path / str(seed), "uniform", seed)
    assert f"with 3 seeds (0, 1 and {2**62})" in fp.load(tmp_path).table("methods")


def test_a_notebook_shows_results_tables_and_figures(results):
    for shown in (results._repr_html_(), results.table()._repr_html_()):
        assert shown.count("<tr>") == 1 + 3
        assert "e3cs(quota=0.5)" in shown
    assert results.plot()._repr_png_().startswith(b"\x89PNG")


def test_frames_are_tidy(results):
    frame, rounds = results.frame(), results.rounds()
    assert len(frame) == 15
    assert not frame.duplicated(["policy", "world", "cohort_size", "seed"]).any()
    assert {"returned", "accuracy", "rounds_to", "jain", "gigabytes", "target"} <= set(frame.columns)
    assert len(rounds) == 15 * 6
    assert not rounds.duplicated(["policy", "world", "cohort_size", "seed", "round"]).any()
    last = rounds[rounds["round"] == 6].set_index(["policy", "seed"])["accuracy"]
    assert (frame.set_index(["policy", "seed"])["accuracy"] == last).all()
    mean = frame.groupby("policy")["accuracy"].mean()
    for row in results.data()["rows"]:
        assert mean[row["policy"]] == pytest.approx(row["scores"]["accuracy"]["mean"])


def test_frames_of_runs_with_other_metrics_fill_with_nan(tmp_path):
    make(tmp_path / "a", "uniform", accuracy=[0.5] * 6)
    make(tmp_path / "b", "e3cs")
    frame = fp.load(tmp_path).rounds()
    assert frame["accuracy"].isna().sum() == 6
    assert fp.load(tmp_path).frame()["accuracy"].isna().tolist() == [False, True]


# --- Figures -----------------------------------------------------------------------------------------------------


def test_bands_are_the_table_s_intervals_and_say_so(results):
    figure = results.plot()
    assert "bands: 95% t-intervals" in figure.get_suptitle()
    axes = figure.axes[0]
    for row, line, band in zip(results.data()["rows"], axes.lines, axes.collections, strict=True):
        score = row["scores"]["accuracy"]
        assert line.get_ydata()[-1] == pytest.approx(score["mean"])
        corners = band.get_paths()[0].vertices
        ends = corners[corners[:, 0] == 6, 1]
        assert (ends.min(), ends.max()) == pytest.approx((score["low"], score["high"]))


def test_one_seed_has_no_band_and_the_figure_says_so(tmp_path):
    figure = fp.load(make(tmp_path / "run")).plot()
    assert "one seed: no intervals" in figure.get_suptitle()
    assert not figure.axes[0].collections


@pytest.mark.parametrize("policies", [pytest.param(2, marks=pytest.mark.slow), 9])
def test_the_legend_covers_no_curve(tmp_path, policies):
    names = [f"over-select(e3cs(quota=0.{i}, sampler='pivotal'), factor=1.3)" for i in range(policies)]
    figure = fp.load(study(tmp_path, names, 2)).plot()
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert len(figure.legends[0].get_texts()) == policies
    for axes in figure.axes:
        assert not legend.overlaps(axes.get_tightbbox())
    assert legend.x0 >= 0
    assert legend.x1 <= figure.canvas.get_width_height()[0]
    assert legend.y0 >= 0


def test_any_column_can_be_drawn_and_others_are_refused(results):
    axes = results.plot("available").axes[0]
    assert axes.get_ylabel() == "available"
    assert results.plot("cep").axes[0].get_ylabel() == "models returned so far"
    with pytest.raises(fp.UnknownNameError, match="did you mean 'accuracy'"):
        results.plot("acuracy")


def test_a_world_in_which_nothing_takes_time_has_no_panel_for_it(tmp_path):
    curve = {"clock": np.zeros(3), "cep": np.arange(3.0), "counts": np.array([1, 2])}
    assert len(plots.draw([plots.Panel("", {"uniform": [curve]})], "").axes) == 2
    curve = curve | {"clock": np.arange(3.0)}
    assert len(plots.draw([plots.Panel("", {"uniform": [curve]})], "").axes) == 3


@pytest.mark.parametrize("kind", ["svg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("png", "pdf"))])
def test_the_same_figure_is_the_same_file(results, kind):
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        results.plot().savefig(file, format=kind)
    assert files[0].getvalue() == files[1].getvalue()


def test_every_format_ends_its_last_line(results):
    for format in ("text", "markdown", "csv", "json", "latex"):
        text = results.table(format)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


# --- Extras that are not there -----------------------------------------------------------------------------------

CASES = [
    ("pyarrow", "results.table('text')", "reading a run needs pyarrow: pip install 'fedpick[report]'"),
    ("pandas", "results.frame()", "a frame needs pandas: pip install 'fedpick[report]'"),
    ("pandas", "results.rounds()", "a frame needs pandas: pip install 'fedpick[report]'"),
    ("matplotlib", "results.plot()", "a plot needs matplotlib: pip install 'fedpick[report]'"),
    ("pandas matplotlib jinja2", "import rich; rich.print(results.table())", None),
    ("pandas matplotlib jinja2 rich typer", "results.table('latex'); str(results); results._repr_html_()", None),
    ("matplotlib rich typer jax flwr", "results.frame(); results.rounds()", None),
]
# Without all of them fedpick is imported; then every case has a process of its own, in which its packages are missing.
WITHOUT = """
import json, os, sys, traceback
cases, folder = json.loads(sys.argv[1]), sys.argv[2]
missing = {name for case in cases for name in case[0].split()}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in missing:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import fedpick as fp
for i, (names, does, _) in enumerate(cases):
    if os.fork():
        os.wait()
        continue
    missing.clear()
    missing.update(names.split())
    said = ""
    try:
        results = fp.load(folder)
        exec(does)
    except fp.MissingError as error:
        said = str(error)
    except BaseException:
        said = traceback.format_exc()
    with open(f"{folder}.{i}", "w") as file:
        file.write(said)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """What each of some cases says."""

    @cache
    def said(*cases):
        folder = make(tmp_path_factory.mktemp("without") / "run")
        command = [sys.executable, "-c", WITHOUT, json.dumps([CASES[case] for case in cases]), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return {case: folder.with_name(f"run.{i}").read_text() for i, case in enumerate(cases)}

    return said


QUICK = (0, 1, 3, 5)  # an error for each package that can be missing, and what works without any


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(i, id=f"{names}: {does}", marks=[pytest.mark.slow] * (i not in QUICK))
        for i, (names, does, _) in enumerate(CASES)
    ],
)
def test_what_is_not_installed_is_one_line(without, case):
    cases = QUICK if case in QUICK else range(len(CASES))
    assert without(*cases)[case] == (CASES[case][2] or "")
