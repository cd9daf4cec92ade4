"""The benchmark of convolution layers: its page, and that its forms compute the same."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
GPU = Path(__file__).parent.parent / "benchmarks" / "gpu"


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY", "1")
        patch.syspath_prepend(str(GPU))
        import convolutions

        yield convolutions
    for name in ("convolutions", "_manifest"):
        sys.modules.pop(name, None)


def test_the_page_is_what_the_command_writes(bench) -> None:
    found = json.loads((bench.RESULTS / "convolutions.json").read_text())
    assert bench.render(found) == (bench.RESULTS / "convolutions.md").read_text()
    measured = [(row["form"], row["precision"]) for row in found["rows"]]
    assert measured == [(form, precision) for form, precision, _ in bench.make_forms()]


@pytest.mark.slow  # interpreted kernels take seconds to compile
def test_every_form_computes_the_same(bench) -> None:
    forms = {form: layers for form, precision, layers in bench.make_forms() if precision == "float32"}
    del forms[bench.STRIPS]  # what the others are compared with
    off = {form: max(bench.compare(form, layers, "float32").values()) for form, layers in forms.items()}
    assert bench.PALLAS in off
    assert {form: value for form, value in off.items() if not value < 1e-5} == {}


def test_a_form_that_fails_is_told_and_what_cannot_be_measured_again_is_kept(bench, tmp_path, monkeypatch) -> None:
    tried = {"date": "2026-01-02", "rows": [{"form": "a thing", "layers_ms": 3.0}]}
    (tmp_path / "convolutions.json").write_text(json.dumps({"also_tried": tried}))

    def measure(form, layers, precision):
        if precision == bench.MIXED:
            raise RuntimeError("no\nmemory")
        return {"layers_ms": 2.0, "cnn_ms": 4.0, "difference_strips": 0.0, "difference_exact": 0.5}

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["convolutions.py", "--out", str(tmp_path), "--only", bench.PALLAS])
    bench.main()
    written = json.loads((tmp_path / "convolutions.json").read_text())
    assert written["also_tried"] == tried
    assert [row["precision"] for row in written["rows"]] == ["float32", "bfloat16", bench.MIXED]
    page = (tmp_path / "convolutions.md").read_text()
    assert f"| {bench.PALLAS} | float32 | 2.00 | 4.00 |" in page
    assert f"- {bench.PALLAS}, {bench.MIXED}: failed: RuntimeError: no memory" in page
    assert "a thing: 3.00" in page
