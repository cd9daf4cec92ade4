"""What goes into a paper: figures in PDF and PGF, the methods paragraph, and what it cites."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from made_runs import make, study
from typer.testing import CliRunner

import fedpick as fp
from fedpick.cli.app import app
from fedpick.data.sources.catalogue import SOURCES
from fedpick.policies import TABLE
from fedpick.report import citations, methods
from fedpick.report.formats import latex_text
from fedpick.worlds import WORLDS

ODD = 'a_b%c&d#e{f}g~h^i\\j$k<l>"m|n'


def rising(policy, seed):
    top = 0.6 + 0.05 * (policy == "fedgs") + 0.01 * seed
    return [None, top / 3, None, top / 2, None, top]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = study(tmp_path_factory.mktemp("paper"), policies=("uniform", "fedgs", ODD), seeds=3, curve=rising)
    return fp.load(root, reference="uniform")


def test_a_column_is_a_column_wide_with_bands_and_lines_that_differ_without_colour(results, tmp_path):
    figure = results.plot(size="column")
    assert figure.get_size_inches()[0] == 3.35
    (axes,) = figure.axes
    assert len(axes.collections) == len(axes.lines) == 3  # bands and means
    assert len({line._dash_pattern[1] and tuple(line._dash_pattern[1]) for line in axes.lines}) == 3
    assert len({line.get_color() for line in axes.lines}) == 3
    fedgs = next(line for line in axes.lines if line.get_label() == "fedgs")
    assert np.allclose(fedgs.get_xdata(), [2, 4, 6])
    assert fedgs.get_ydata()[-1] == pytest.approx(0.66)
    assert axes.get_ylabel() == "test accuracy"
    figure.savefig(tmp_path / "fig.pdf")
    first = (tmp_path / "fig.pdf").read_bytes()
    assert first.startswith(b"%PDF")
    assert re.search(rb"/MediaBox \[ ?0 0 241\.2", first)  # points
    assert b"/Type3" not in first  # which journals refuse
    results.plot(size="column").savefig(tmp_path / "again.pdf")
    assert (tmp_path / "again.pdf").read_bytes() == first


def test_other_sizes_axes_and_metrics(results):
    assert results.plot(size="text").get_size_inches()[0] == 6.9
    over = {name: results.plot("test_loss", size="column", over=name).axes[0] for name in ("time", "bytes")}
    assert over["time"].get_xlabel() == "minutes"
    assert over["time"].lines[0].get_xdata()[-1] == 6
    assert over["bytes"].get_xlabel() == "GB sent"
    assert over["bytes"].lines[0].get_xdata()[-1] == pytest.approx(2.4)
    with pytest.raises(fp.UnknownNameError, match="column"):
        results.plot(size="colum")
    with pytest.raises(fp.UnknownNameError, match="rounds"):
        results.plot(size="column", over="round")


def test_blocks_are_panels(tmp_path):
    for clients in (12, 14):
        world = {"name": "volatile", "num_clients": clients}
        study(tmp_path / str(clients), policies=("uniform", "e3cs"), seeds=2, world=world)
    results = fp.load(tmp_path)
    assert len(results.plot(size="text").axes) == 2
    assert [axes.get_title() for axes in results.plot(size="column").axes] == [
        "volatile(num_clients=12)",
        "volatile(num_clients=14)",
    ]


def unescaped(text):
    """Characters that mean something to LaTeX, and are not escaped."""
    plain = re.sub(r"\\catcode`\\[\^%]=\\active\\def.\{.*?\}(?=\\catcode|[^\\])", "", text)
    return re.findall(r"(?<!\\)[&#$_~]", re.sub(r"\$-\$", "", plain))


def test_pgf_needs_no_latex_to_be_written_and_names_are_escaped(results, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no LaTeX
    results.plot(size="column").savefig(tmp_path / "fig.pgf")
    text = (tmp_path / "fig.pgf").read_text(encoding="utf-8")
    assert text.count("\\begin{pgfpicture}") == text.count("\\end{pgfpicture}") == 1
    assert text.count("\\begin{pgfscope}") == text.count("\\end{pgfscope}")
    assert "\\pgfqpoint{3.350000in}" in text
    assert "test accuracy" in text
    assert latex_text(ODD) in text
    assert "mathdefault" not in text  # not known in a document
    labels = re.findall(r"\\def%\{\\%\}(.*)\}\}%$", text, flags=re.M)
    assert len(labels) > 10
    assert [unescaped(label) for label in labels] == [[]] * len(labels)
    results.plot(size="column").savefig(tmp_path / "again.pgf")
    assert (tmp_path / "again.pgf").read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_latex_takes_figure_table_and_paragraph(results, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex")
    results.plot(size="column").savefig(tmp_path / "fig.pgf")
    (tmp_path / "table.tex").write_text(results.table("latex"), encoding="utf-8")
    (tmp_path / "methods.tex").write_text(results.table("methods"), encoding="utf-8")
    (tmp_path / "refs.bib").write_text(results.table("bibtex"), encoding="utf-8")
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,pgf}\begin{document}"
        r"\input{methods}\input{fig.pgf}\input{table}\bibliographystyle{plain}\bibliography{refs}\end{document}"
    )
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


# ---- the paragraph and its citations


def test_the_paragraph_says_what_was_done(tmp_path):
    data = {"name": "fashion-mnist", "partition": "dirichlet(alpha=0.3)"}
    policies = ("uniform", "over-select(e3cs(quota=0.5), 1.3)", "fedcs")
    study(tmp_path, policies=policies, seeds=3, data=data, train={"lr": 0.1})
    results = fp.load(tmp_path, reference="uniform")
    text = results.table("methods")
    for part in (
        r"\texttt{uniform}~\cite{mcmahan2017communication}",
        r"\texttt{over-select(e3cs(quota=0.5), 1.3)}~\cite{bonawitz2019towards,huang2022stochastic}",
        "4 of 12 clients in each of 6 rounds",
        r"\texttt{volatile(num\_clients=12)}~\cite{huang2022stochastic}",
        r"\texttt{fashion-mnist, dirichlet(alpha=0.3)}~\cite{xiao2017fashion}",
        r"with the settings \texttt{lr=0.1, model=mlp(hidden=(200, 200)), batch=64, steps=30}",
        "3 seeds (0 to 2)",
        r"differences to \texttt{uniform} are paired by seed",
        r"\texttt{fedcs (oracle)} knows what no server knows",
        f"fedpick {fp.__version__}~\\cite{{fedpick}}",
    ):
        assert part in text
    keys = {key for group in re.findall(r"\\cite\{([^}]*)\}", text) for key in group.split(",")}
    assert keys == set(re.findall(r"^@\w+\{(\w+),$", results.table("bibtex"), flags=re.M))


def test_the_paragraph_names_defaults_of_this_version_only(tmp_path, monkeypatch):
    usual = make(tmp_path / "usual", data={"name": "cifar10"}).parent
    text = fp.load(usual).table("methods")
    assert (
        r"\texttt{cifar10}~\cite{krizhevsky2009learning}, divided by \texttt{primary-label(share=0.8, size=500)}"
        in text
    )
    whole = "(an epoch is one pass over a client's examples)"
    assert rf"the settings \texttt{{model=cifar-cnn, lr=0.01, momentum=0.9, batch=40}} {whole}" in text
    given = make(tmp_path / "given" / "a", data={"name": "cifar10"}, train={"trainer": "mine.py:Trainer"})
    assert r"with the settings \texttt{trainer=mine.py:Trainer}." in fp.load(given).table("methods")
    monkeypatch.setattr(methods, "__version__", "0.0.1")
    assert "settings" not in fp.load(usual / "usual").table("methods")


def test_bands_end_where_no_value_can_be(tmp_path):
    study(
        tmp_path,
        policies=("uniform",),
        seeds=2,
        curve=lambda policy, seed: [0.02 + 0.06 * seed, None, 0.95 + 0.04 * seed] * 2,
    )
    results = fp.load(tmp_path)
    for figure in (results.plot("accuracy"), results.plot("accuracy", size="column")):
        band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
        assert (band.min(), band.max()) == (0.0, 1.0)  # the intervals are wider
    counts = results.plot().axes[-1].collections[0].get_paths()[0].vertices[:, 1]
    assert counts.min() >= 0.0


@pytest.mark.parametrize(
    ("apart", "rise", "limits"),
    [
        (0.4, 0.02, (0.488, 0.532)),  # wide bands leave the picture: six tenths of the means' range around these
        (0.4, 0.0, (0.0, 1.0)),  # a half, where the means do not differ
        (0.0, 0.02, (0.499, 0.521)),  # bands without width are seen, with matplotlib's margins
    ],
)
def test_the_means_are_always_seen(tmp_path, apart, rise, limits):
    study(
        tmp_path,
        policies=("uniform",),
        seeds=2,
        curve=lambda policy, seed: [0.5 + apart * (seed - 0.5), None, 0.5 + rise + apart * (seed - 0.5)] * 2,
    )
    (axes,) = fp.load(tmp_path).plot(size="column").axes
    assert axes.get_ylim() == pytest.approx(limits)


def test_one_run_and_real_clients_promise_no_more_than_there_is(tmp_path):
    alone = fp.load(make(tmp_path / "one")).table("methods")
    assert "one seed (0)" in alone
    assert "intervals" not in alone
    assert "paired" not in alone
    assert "only the selection is simulated" in alone
    served = fp.load(make(tmp_path / "served", "E3CS(quota=0.5)", engine="flower")).table("methods")
    assert "real clients" in served
    assert "(server: flower)" in served
    assert "huang2022stochastic" in served
    assert "seed" not in served


def test_a_policy_of_one_s_own_cites_nobody():
    assert citations.cited_policies("mine.py:Random(eps=0.1)") == []
    assert citations.cited_policies("guard(oort)") == ["lai2021oort"]


def test_every_policy_world_data_set_and_pace_of_a_paper_is_known():
    assert {name.split("-")[0] for name in citations.WORLDS} <= {name.split("-")[0] for name in WORLDS}
    assert set(citations.DATA) - {"synthetic"} <= set(SOURCES)
    papers = citations.papers()
    used = {key for table in (citations.WORLDS, citations.DATA) for keys in table.values() for key in keys}
    used |= {each.about.paper.key for each in TABLE.values() if each.about.paper}
    paces = ("buffered(concurrency=2)", "buffered(concurrency=2, size=1, mixing='hinge')")
    used |= {key for pace in paces for key in citations.cited_pace(pace)}
    assert used | {"fedpick"} == set(papers)
    assert [name for name, each in TABLE.items() if each.about.paper is None] == ["Balanced", "Guard"]
    assert all(each.about.paper.url.startswith("https://") for each in TABLE.values() if each.about.paper)
    entries = citations.bibtex(sorted(papers))
    assert entries.count("{") == entries.count("}")
    assert len(re.findall(r"^@", entries, flags=re.M)) == len(papers)
    assert entries.isascii()
    assert "others" not in entries
    for paper in papers.values():  # a venue, and of a preprint its number
        assert re.match(r"(journal|booktitle|institution|note) = \{[^{}]+\}", paper.venue), paper
        assert "preprint" not in paper.venue or re.search(r"arXiv:\d{4}\.\d{5}\}", paper.venue), paper


def test_the_command_writes_them(tmp_path):
    root = str(study(tmp_path / "runs", policies=("uniform", "e3cs"), seeds=2))
    for name, options, start in (
        ("fig.pgf", ["--size", "column", "--metric", "cep"], b"% Made by fedpick"),
        ("fig.pdf", ["--size", "column", "--over", "time"], b"%PDF"),
        ("refs.bib", [], b"@"),
        ("methods.tex", ["-f", "methods"], b"We compare"),
    ):
        result = CliRunner().invoke(app, ["report", root, "-o", str(tmp_path / name), *options])
        assert result.exit_code == 0, result.output
        assert (tmp_path / name).read_bytes().startswith(start)
    result = CliRunner().invoke(app, ["report", root, "-f", "methods"])
    assert result.output.startswith("We compare")
