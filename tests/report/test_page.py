"""The report page: complete in one file, safe with any name, and drawn by a real browser (slow)."""

import base64
import hashlib
import html
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from made_runs import WORLD, make, record, study
from typer.testing import CliRunner

import fedpick as fp
from browsers import CHROMIUM, axe, opened, require
from fedpick.cli.app import app
from fedpick.experiment import Experiment
from fedpick.report import files
from fedpick.report.intervals import interval
from fedpick.report.page import command
from fedpick.report.page.verdict import verdict
from fedpick.store import Tables
from fedpick.store.records import presence

HOSTILE = "<script>alert(1)</script>'\"&{{7*7}}</style><!--\u202e\u2028" + "x" * 10_000


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def embedded(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found.group(1))


def rising(policy, seed):
    top = {"uniform": 0.6, "e3cs(quota=0.5)": 0.8, "fedcs": 0.7}.get(policy, 0.5) + 0.01 * seed
    return [None, top / 3, None, top / 2, None, top]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return fp.load(study(tmp_path_factory.mktemp("page"), seeds=3, curve=rising), reference="uniform")


@pytest.fixture(scope="module")
def page(results):
    return results.page()


def test_it_is_complete_and_asks_nothing_of_any_machine(page):
    parsed = Parsed(page)
    links = [
        value for _, attributes in parsed.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links), links
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|innerHTML|\beval\b", page)
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}
    policy = next(each["content"] for each in parsed.all("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy  # no other script runs


def test_its_order_and_structure(page):
    parsed = Parsed(page)
    sections = [each["id"] for each in parsed.all("section") if "id" in each]
    assert sections == ["verdict", "table", "gaps", "curves", "chosen", "answers", "again"]
    assert parsed.all("html")[0]["lang"] == "en"
    assert len(parsed.all("h1")) == len(parsed.all("main")) == 1
    assert all("scope" in each for each in parsed.all("th"))
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = [each["aria-labelledby"] for _, each in parsed.elements if "aria-labelledby" in each]
    assert set(labelled) <= set(ids)
    assert "fedcs (oracle)" in parsed.text


def test_the_same_runs_give_the_same_page(results, page):
    assert results.page() == page


def test_the_charts_have_the_numbers_of_the_tables(results, page):
    chart = embedded(page)["settings"][0]
    frame = results.frame()
    assert chart["policies"] == ["uniform", "e3cs(quota=0.5)", "fedcs (oracle)"]
    accuracy = next(each for each in chart["metrics"] if each["name"] == "accuracy")
    for name, line in zip(("uniform", "e3cs(quota=0.5)", "fedcs"), accuracy["lines"], strict=True):
        values = frame[frame.policy == name].accuracy
        assert line["round"] == [2, 4, 6]
        assert line["seconds"] == [120, 240, 360]
        assert line["megabytes"] == [800, 1600, 2400]
        assert line["mean"][-1] == pytest.approx(values.mean())
        assert line["half"][-1] == pytest.approx(interval(values).half, rel=1e-5)
    for i, row in enumerate(results.data()["rows"]):
        for seed, run in enumerate(results._rows[i].group.runs):
            cells = np.reshape(chart["maps"][i][seed]["cells"], (12, 6))
            assert cells.sum(axis=1).tolist() == run.counts.tolist()
            assert cells.sum(axis=0).tolist() == [4] * 6
        assert chart["status"][i]["done"] == sum(row["scores"]["returned"]["values"])
        assert sum(chart["status"][i].values()) == 3 * 6 * 4
    gaps = next(each for each in chart["differences"] if each["label"] == "test accuracy")["rows"]
    assert [each["policy"] for each in gaps] == [1, 2]
    assert gaps[0]["mean"] == pytest.approx(0.2)


def test_one_seed_one_run_and_a_deployment(tmp_path):
    alone = fp.load(make(tmp_path / "one", failed_seconds=3.0)).page()
    assert "with one seed" in Parsed(alone).text
    assert "Clients that failed or were late most often" in alone
    assert embedded(alone)["settings"][0]["differences"] == []
    served = make(tmp_path / "served", "E3CS(quota=0.5)", engine="flower")
    text = Parsed(fp.load(served).page()).text
    assert "No command repeats these runs" in text
    assert "seed" not in text.split("Configuration")[0]  # real clients do not depend on it
    assert "E3CS(quota=0.5): models returned" in text
    pair = fp.load(served, make(tmp_path / "other", "Uniform()", engine="flower"))
    assert "each server ran once, with clients of its own: differences may be chance" in pair.table("markdown")
    assert "(each ran once, with clients of its own: a difference may be chance)" in Parsed(pair.page()).text
    two = Parsed(fp.load(tmp_path / "one", served).page()).text
    assert "real clients (flower)" in two


# ---- size


@pytest.mark.parametrize(("clients", "rounds"), [(12, 6), (1_000_000, 500), (101, 121)])
def test_maps_are_binned_and_lose_no_selection(tmp_path, clients, rounds):
    world = {"name": "volatile", "num_clients": clients}
    found = fp.load(make(tmp_path / "run", rounds=rounds, world=world))
    cells = embedded(found.page())["settings"][0]["maps"][0][0]
    assert cells["height"] == min(clients, 100)
    assert cells["width"] == min(rounds, 120)
    assert len(cells["cells"]) == cells["height"] * cells["width"]
    run = found._rows[0].group.runs[0]
    assert sum(cells["cells"]) == run.counts.sum() == 4 * rounds
    edges = [-(-k * clients // cells["height"]) for k in range(cells["height"])]  # as the script computes them
    assert (
        np.reshape(cells["cells"], (cells["height"], -1)).sum(axis=1).tolist()
        == np.add.reduceat(run.counts, edges).tolist()
    )


def written(folder, records, policy, seed, clients, about=None):
    """A run of these records."""
    config = {"policy": policy, "cohort_size": len(records[0].ids), "rounds": len(records), "seed": seed}
    config |= {"checkpoint_every": 100, "world": {"name": "volatile", "num_clients": clients}}
    with Tables(folder, config) as tables:
        tables.write(records, list(records[0].metrics))
        tables.join(len(records))
        if about is not None:
            tables.note(about)


def many(root, policies=6, seeds=5, rounds=2500, clients=100, cohort_size=20):
    """Runs of this size, all with the same records, because only the size matters."""
    rng = fp.rng.stream(0, 0, "many")
    curve = 0.9 - 0.8 / np.arange(1, rounds + 1) + 0.01 * np.sin(np.arange(rounds))
    records = [record(t + 1, rng, clients, cohort_size, float(curve[t])) for t in range(rounds)]
    there = rng.random((rounds, clients)) < 0.7
    records = [replace(each, available=there[t].sum(), there=presence(there[t])) for t, each in enumerate(records)]
    about = {"size": rng.integers(5, 500, clients), "label": rng.integers(10, size=clients)}
    about["accuracy"] = rng.random(clients)
    for i in range(policies):
        for seed in range(seeds):
            folder = root / "runs" / f"{i}-{seed}"
            written(folder, records, f"e3cs(quota={i / 100})", seed, clients)
            with Tables(folder) as tables:
                tables.describe_clients(about, rounds)
    return root


@pytest.mark.slow
def test_a_large_study_is_a_small_page(tmp_path):
    page = fp.load(many(tmp_path)).page()
    assert len(page.encode()) < 8e6
    chart = embedded(page)["settings"][0]
    assert all([chart["away"], chart["classes"], *chart["accuracies"], *chart["stated"]])


@pytest.mark.slow
def test_many_policies_are_a_small_page(tmp_path):
    assert len(fp.load(many(tmp_path, policies=60, seeds=3, rounds=300)).page().encode()) < 8e6


# ---- names


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    for policy, about in (("uniform", None), ("e3cs", {"policy": HOSTILE, "data": HOSTILE, "train": HOSTILE})):
        for seed in range(2):
            rng = fp.rng.stream(seed, 0, policy)
            metrics = {"accuracy": 0.5 + seed / 100, HOSTILE: 1.0}
            records = [replace(record(t, rng, 12, 4), metrics=metrics) for t in range(1, 7)]
            written(root / "runs" / f"{policy[0]}{seed}", records, policy, seed, 12, about)
    return root


def test_a_hostile_name_is_text(hostile):
    text = fp.load(hostile).page()
    parsed = Parsed(text)
    assert len(parsed.all("script")) == 2
    assert len(parsed.all("style")) == 1
    assert "<script>alert" not in text
    assert "<script>alert(1)</script>'\"&{{7*7}}</style><!--" in parsed.text
    assert "49" not in parsed.text.split("Table")[0]
    charts = embedded(text)["settings"]
    shown = HOSTILE.replace("\u202e\u2028", "??")
    assert any(shown in chart["policies"] for chart in charts)
    assert all(shown in [each["label"] for each in chart["metrics"]] for chart in charts)
    assert "\u202e" not in text
    assert "\u2028" not in text


# ---- words


def said(root):
    return " ".join(verdict(fp.load(root, reference="uniform")._rows))


def test_the_verdict_names_what_is_better_and_what_is_not(tmp_path):
    tops = {"uniform": 0.6, "e3cs": 0.8, "bsfl": 0.4, "fedgs": 0.6, "fedcs": 0.9, "pow-d": 0.65}
    shakes = {"uniform": 0.0, "e3cs": 0.013, "bsfl": 0.007, "fedgs": 0.03, "fedcs": 0.011, "pow-d": 0.0}

    def curve(policy, seed):
        return [None] * 5 + [tops[policy] + 0.01 * seed + shakes[policy] * (-1) ** seed]

    text = said(study(tmp_path, policies=tuple(tops), seeds=4, curve=curve))
    assert text.startswith("e3cs is better than uniform: test accuracy 0.8")
    assert "Clearly worse than uniform in test accuracy: bsfl (-0.20" in text
    assert "Not told apart from uniform by 4 seeds: fedgs (+0.000" in text
    assert "The same difference to uniform in test accuracy with every seed: pow-d (+0.050)" in text
    assert "Knows what no server knows, so it is a bound and no competitor: fedcs (oracle) (+0.3" in text
    assert "Each is a 95% interval by itself: of 5 such differences" in text


def test_the_verdict_is_about_what_differs(tmp_path):
    policies = ["uniform", "over-select(uniform, 1.5)"]
    how = {"world": "rbcs-f(num_clients=30)", "data": None, "cohort_size": 6, "rounds": 20, "seeds": 4}
    fp.compare(policies, **how, workers=1, out=tmp_path)
    text = said(tmp_path)  # every client returns with either policy
    assert text.startswith("over-select(uniform, 1.5) is better than uniform: simulated seconds 106.7 ")
    assert "models returned" not in text
    costs = text.partition("compared with uniform: ")[2]
    assert "seconds" not in costs  # said once
    assert "MB sent +" in costs  # the same with every seed
    assert "(worse)" in costs


def test_the_verdict_of_one_seed_promises_nothing(tmp_path):
    text = said(study(tmp_path, policies=("uniform", "e3cs"), seeds=1))
    assert text.startswith("Models returned in time, best first: ")
    assert "a difference may be chance" in text
    assert "better" not in text


# ---- the command


def test_the_command_makes_the_same_runs(tmp_path):
    configs = {
        "options": {
            "world": WORLD,
            "data": {"name": "digits", "partition": "iid"},
            "train": {"lr": 0.1, "algorithm": "feddyn(alpha=0.1)"},
        },
        "none": {"world": {"name": "volatile"}},
        "file": {
            "world": {**WORLD, "deadline": 9.0, "availability": "bernoulli(p=0.8)"},
            "data": {"name": "digits", "seed": 3},
            "train": {"model": "mlp(hidden=(64,))", "epochs": 2},
        },
    }
    for name, config in configs.items():
        root = study(tmp_path / name, policies=("uniform", "e3cs(quota=0.5)"), seeds=2, **config)
        results = fp.load(root, reference="uniform")
        text = command.repeat_command([row.group for row in results._rows])
        plan = repeated(text, tmp_path / f"{name}.toml")
        made = {config.key for config in plan.configs()}
        wanted = Experiment(policy=["uniform", "e3cs(quota=0.5)"], cohort_size=4, seeds=2, rounds=6, **config)
        assert made == {config.key for config in wanted.configs()}, text
        assert text.startswith("cat > study.toml" if name == "file" else "fedpick compare -p uniform")
        assert text.splitlines()[0] in Parsed(results.page()).text or name == "file"


def repeated(text, file):
    """The experiment that a command of the page describes."""
    if text.startswith("cat"):
        file.write_text(text.split("<<'END'\n")[1].split("\nEND\n")[0])
        return fp.experiment.load_experiment(file)
    plans = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedpick.cli.compare.make_and_show", lambda experiment, *_, **__: plans.append(experiment))
        result = CliRunner().invoke(app, shlex.split(text)[1:])
    assert result.exit_code == 0, result.output
    return plans[0]


def test_texts_survive_toml():
    for text in ("plain", 'a "b" \\ c', "\n\t\x7f\u202e", "END", "'"):
        assert tomllib.loads(f"x = {command._toml([text, 1, 1.5, True, {text: 2}])}") == {
            "x": [text, 1, 1.5, True, {text: 2}]
        }
    assert "\n" not in command._toml("END\nrm")


# ---- the command line


def test_report_writes_the_page_or_another_format_to_a_file(tmp_path, monkeypatch):
    root = study(tmp_path / "runs", policies=("uniform", "e3cs"), seeds=2)
    for name, start in (
        ("page.html", "<!doctype html>"),
        ("table.tex", "%"),
        ("table.csv", "policy,"),
        ("table.json", "{"),
        ("table.md", "volatile"),
    ):
        result = CliRunner().invoke(app, ["report", str(root), "-o", str(tmp_path / "new" / name)])
        assert result.exit_code == 0, result.output
        assert name in result.output.replace("\n", "")
        assert "models" not in result.output  # not shown as well
        assert (tmp_path / "new" / name).read_text(encoding="utf-8").lstrip().startswith(start)
    CliRunner().invoke(app, ["report", str(root), "-f", "csv", "-o", str(tmp_path / "odd.txt")])
    assert (tmp_path / "odd.txt").read_text().startswith("policy,")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # drawing takes long
    made, _ = files.write(fp.load(root), tmp_path / "folder.v2", "report")
    assert made == ["report.json", "report.csv", "report.html"]
    assert not files.is_file(tmp_path / "folder.v2")
    assert not files.is_file(tmp_path / "quota-0.5")


def test_a_file_of_an_unknown_kind_is_refused_before_anything_is_read(tmp_path):
    result = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere"), "-o", str(tmp_path / "x.xlsx")])
    assert isinstance(result.exception, fp.ConfigError)
    assert "fedpick writes no .xlsx files, but .html, .md, .tex, .csv" in str(result.exception)
    assert not (tmp_path / "x.xlsx").exists()


def test_a_page_that_cannot_be_written_says_why(tmp_path):
    root = study(tmp_path / "runs", seeds=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(fp.FedpickError, match=r"cannot write page\.html .* the runs are intact"):
        files.write_file(fp.load(root), tmp_path / "file" / "page.html")


def test_without_jinja_the_message_says_what_to_install(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(fp.FedpickError, match=r"a page needs jinja2: pip install 'fedpick\[report\]'"):
        results.page()


# ---- in a browser


def browser(page, folder, *options):
    """Open a page headless; returns its DOM when the script has run, and what it said on the console."""
    require()
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
         "--no-first-run", "--disable-component-update", "--disable-background-networking", "--enable-logging=stderr",
         "--virtual-time-budget=5000", *options, "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def open_with(text, folder, steps, width):
    """Open a page in a frame of this width (a window has at least 500) and run `steps`, a script that calls `say`.

    Returns what it said, and the console.
    """
    tell = "const say = (text) => { parent.document.getElementById('said').textContent = text; };"
    loose = re.sub(r"script-src 'sha256-[^']*'", "script-src 'unsafe-inline'", text)
    assert loose != text
    framed = html.escape(loose.replace("</body>", f"<script>{tell}{steps}</script></body>"))
    file = folder / "opened.html"
    file.write_text(
        f'<pre id="said"></pre><iframe width={width} height=900 srcdoc="{framed}"></iframe>', encoding="utf-8"
    )
    dom, console = browser(file, folder, "--window-size=1600,1000")
    return html.unescape(re.search(r'<pre id="said">(.*?)</pre>', dom, re.DOTALL).group(1)), console


@pytest.mark.slow
def test_a_browser_draws_the_charts_without_a_word(page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    dom, console = browser(file, tmp_path)
    assert console == []
    parsed = Parsed(dom)
    classes = [attributes.get("class") for _, attributes in parsed.elements]
    assert classes.count("curve") >= 3 * 3  # curves, counts, durations: three policies each
    assert classes.count("map") == 3
    assert classes.count("chip") == 3
    assert all("aria-label" in each for each in parsed.all("canvas"))
    assert all("aria-label" in each for each in parsed.all("svg") if each.get("role") == "img")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_the_width_and_its_texts_have_contrast(page, tmp_path, width):
    """4.5 to 1 for every text, in light and dark, as WCAG AA wants it."""
    steps = """
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!c.endsWith(', 0)')) return c; } return 'rgb(255, 255, 255)'; };
      const poor = [], wide = [];
      for (const theme of ['light', 'dark']) {
        document.documentElement.dataset.theme = theme;
        let seen = 0;
        for (const e of document.querySelectorAll('body *')) {
          const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
          if (!own || !e.getClientRects().length || ['SCRIPT', 'OPTION'].includes(e.tagName)) continue;
          const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
          const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
          seen++;
          if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(theme + ' ' + e.tagName + '.' + e.className + ' ' + ink);
        }
        if (seen < 100) poor.push('only ' + seen);
      }
      if (document.documentElement.scrollWidth > innerWidth) wide.push(document.documentElement.scrollWidth);
      for (const e of document.querySelectorAll('svg.plot'))
        if (e.viewBox.baseVal.width !== e.clientWidth) wide.push(e.viewBox.baseVal.width + ' in ' + e.clientWidth);
      const bare = [...document.querySelectorAll('button, select, input, [role=img], [role=region]')].filter((e) =>
        !e.textContent.trim() && !e.getAttribute('aria-label') && !e.labels?.length).map((e) => e.id);
      say(JSON.stringify({ poor, wide, bare }));
    """
    said, console = open_with(page, tmp_path, steps, width)
    assert console == []
    assert json.loads(said) == {"poor": [], "wide": [], "bare": []}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(page, tmp_path, theme, width):
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with opened(file.as_uri(), width, dark=theme == "dark") as shown:
        shown.wait_for_selector("#f-curves .curve")
        assert shown.evaluate("() => document.documentElement.dataset.theme") == theme
        assert axe(shown) == []
        assert shown.said == []
        assert shown.asked == [file.as_uri()]


@pytest.mark.slow
def test_toggles_keys_and_downloads_work(page, tmp_path):
    steps = """
      const told = [], tell = (x) => told.push(x), one = (x) => document.querySelector(x);
      const curves = () => document.querySelectorAll('#f-curves .curve').length;
      window.Blob = class { constructor(parts) { tell('text ' + parts[0].split('\\n')[0]); } };
      URL.createObjectURL = () => 'blob:none';
      HTMLAnchorElement.prototype.click = function () { tell('file ' + this.download); };
      tell('curves ' + curves());
      one('.chip').click();
      tell('curves ' + curves());
      one('input[value=seconds]').click();
      tell('axis ' + one('#f-curves svg').textContent.includes('simulated minutes'));
      one('#f-curves svg.plot').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
      tell('spoken ' + one('#live').textContent);
      for (const each of document.querySelectorAll('#charts button')) if (each.textContent === 'CSV') each.click();
      one('#all-csv').click();
      one('#theme').click(); one('#theme').click();
      tell('theme ' + document.documentElement.dataset.theme);
      tell('wide ' + (document.documentElement.scrollWidth <= innerWidth));
      say(told.join('|'));
    """
    text, console = open_with(page, tmp_path, steps, 390)
    assert console == []
    told = text.split("|")
    assert told[:3] == ["curves 3", "curves 2", "axis true"]
    assert told[3].startswith("spoken simulated minutes 2: e3cs(quota=0.5) 0.2")
    files = [each for each in told if each.startswith("file ")]
    assert "file fedpick-curves.csv" in files
    assert "file fedpick-scores.csv" in files
    assert len(files) == len(set(files)) == len([each for each in told if each.startswith("text ")]) >= 6
    assert "text policy,simulated minutes,test accuracy,half_width_of_95%_interval" in told
    assert told[-2:] == ["theme dark", "wide true"]


@pytest.mark.slow
def test_a_hostile_name_is_text_in_a_browser(hostile, tmp_path):
    steps = """
      window.alert = () => console.error('ran');
      say([document.querySelectorAll('script').length, document.documentElement.scrollWidth <= innerWidth,
        document.querySelector('.chip span').textContent.startsWith('<script>')].join('|'));
    """
    text = fp.load(hostile / "runs" / "e0", hostile / "runs" / "e1").page()
    said, console = open_with(text, tmp_path, steps, 390)
    assert console == []
    assert said == "3|true|true"
