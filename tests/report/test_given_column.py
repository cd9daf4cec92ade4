"""What a policy is given beyond the others stands beside its name."""

import json

from made_runs import make

from fedpick.report.results import Results


def test_what_is_given_stands_beside_the_names(tmp_path):
    make(tmp_path / "a", "uniform", about={"given": []})
    make(tmp_path / "b", "flips", about={"given": ["label counts"]})
    make(tmp_path / "c", "greedyfed")  # of before: it is not known
    results = Results([tmp_path / name for name in "abc"])
    text = results.table("markdown")
    assert "| uniform |  |" in text
    assert "| flips | label counts |" in text
    assert "is given: what the policy needs" in text
    assert [row["given"] for row in json.loads(results.table("json"))["rows"]] == [[], ["label counts"], []]
    assert ",label counts," in results.table("csv")
    assert results.frame()["given"].tolist() == ["", "label counts", ""]
    assert "label counts" in results.page()


def test_tables_of_policies_that_are_given_nothing_have_no_such_column(tmp_path):
    make(tmp_path / "a", "uniform", about={"given": []})
    text = Results([tmp_path / "a"]).table("markdown")
    assert "is given" not in text
