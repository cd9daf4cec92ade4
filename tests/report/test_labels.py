"""Names of policies in place of their texts: in every form of the results, and in no run's key."""

import pytest
from made_runs import make, study

import fedpick as fp
from fedpick.report.labels import read_labels

OURS = {"e3cs( quota=.5 )": "Ours & co"}


@pytest.fixture
def folder(tmp_path):
    return study(tmp_path, seeds=2, curve=lambda policy, seed: [0.1 * (t + 1) + 0.01 * seed for t in range(6)])


def test_every_form_of_the_results_has_them(folder):
    results = fp.load(folder, label=OURS)
    assert {row["policy"] for row in results.data()["rows"]} == {"uniform", "Ours & co", "fedcs"}
    assert "Ours & co" in results.table("text")
    assert "Ours \\& co" in results.table("latex")
    assert "Ours & co" in results.table("csv")
    assert "Ours & co" in set(results.frame()["policy"])
    assert "Ours & co" in set(results.rounds()["policy"])
    assert "Ours &amp; co" in results.page()
    assert "Ours & co" in [text.get_text() for text in results.plot().legends[0].get_texts()]
    assert "Ours \\& co" in results.table("methods")
    assert "\\texttt{Ours \\& co}~\\cite{" in results.table("methods")  # what it is, is still cited
    for form in ("text", "latex", "csv"):
        assert "quota" not in results.table(form)


def test_a_reference_may_be_a_label(folder):
    results = fp.load(folder, label=["e3cs(quota=0.5)=Ours"], reference="Ours")
    assert results.reference == "e3cs(quota=0.5)"
    assert results.data()["reference"] == "Ours"
    assert "differences are to Ours" in " ".join(results.table("text").split())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["fedgs=X"], "policy in a label.*fedgs"),
        (["uniform"], "label = 'uniform', but must be a policy and its name: 'my.py:X=Ours'"),
        (["uniform= "], "label: ' ' for uniform, but must be a text to be shown"),
        (["uniform=Ours", "fedcs=Ours"], "would both be called 'Ours'; give another"),
        (["fedcs=uniform"], "would both be called 'uniform'; give another"),
    ],
)
def test_a_label_that_cannot_be_meant_is_refused(folder, given, says):
    with pytest.raises(fp.FedpickError, match=says):
        fp.load(folder, label=given)


def test_where_a_text_is_divided():
    assert read_labels(["a.py:X(b='=')=Y = Z", "over-select(e3cs(quota=0.5), 1.3)=O"]) == {
        "a.py:X(b='=')": "Y = Z",
        "over-select(e3cs(quota=0.5), 1.3)": "O",
    }
    assert read_labels(None) == {}


def test_those_of_a_comparison_are_kept_with_its_runs(tmp_path):
    settings = {"data": None, "cohort_size": 3, "seeds": 1, "rounds": 5, "out": tmp_path, "executor": "serial"}
    first = fp.compare(["uniform", "e3cs"], **settings)
    results = fp.compare(["uniform", "e3cs"], label={"E3CS": "Ours"}, **settings)
    assert {run.folder for run in results.runs} == {run.folder for run in first.runs}  # no other run's key
    assert [row["policy"] for row in results.data()["rows"]] == ["uniform", "Ours"]
    assert [run.name for run in fp.load(tmp_path).runs] == ["uniform", "Ours"]
    with pytest.raises(fp.FedpickError, match="policy in a label"):
        fp.compare(["uniform"], label={"e3cs": "Ours"}, **settings)
    assert [run.name for run in fp.compare(["uniform"], **settings).runs] == ["uniform"]
    by_class = fp.compare([fp.Uniform, fp.E3CS], label={fp.E3CS: "The class"}, **settings)
    assert [run.name for run in by_class.runs] == ["Uniform", "The class"]
    (tmp_path / "labels.json").write_text("[")
    assert [run.name for run in fp.load(tmp_path).runs][:2] == ["uniform", "e3cs"]  # damaged: the names are lost


def test_a_live_page_calls_runs_by_their_labels(tmp_path):
    from fedpick.report.live import LivePage

    make(tmp_path / "runs" / "one", "uniform")
    (tmp_path / "labels.json").write_text('{"uniform": "Ours"}')
    page = LivePage(tmp_path, reference="Ours").answer("/")
    assert page is not None
    assert b"Ours" in page.body
