"""/metrics: the numbers of a session, read by Prometheus's own parser; alerts and dashboard use names that exist."""

import json
import pathlib
import re
import urllib.error
import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fedpick as fp
from fedpick.server.prometheus import quoted

DOCS = pathlib.Path(__file__).parents[2] / "docs"
HOSTILE = '<script>"quote" \\ back\n# HELP x\u202e' + "x" * 10_000


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def numbers(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


def play(session, names="abcd", fail=(), late=()):
    with session.round(list(names)) as r:
        for name in r.chosen:
            if name in fail:
                r.failed(name)
            elif name not in late:
                r.done(name, loss=1.0, seconds=0.1)
        return r.chosen


@pytest.fixture
def session():
    with fp.Session(fp.OverSelect(fp.Uniform(cohort_size=2), 1.5), metrics=":0") as made:
        yield made


def scraped(session):
    with urllib.request.urlopen(session.metrics.url, timeout=10) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return reply.read().decode()


def test_the_numbers_are_those_of_the_records(session):
    records = []
    for fail, late in (("", ""), ("ab", ""), ("", "cd"), ("a", "b")):
        play(session, fail=fail, late=late)
        records.append(session.last)
    found = numbers(scraped(session))
    status = np.concatenate([record.status for record in records])
    for each in fp.Status:
        assert found[f"fedpick_clients_{each.name.lower()}_total",] == np.count_nonzero(status == each)
    assert found["fedpick_clients_chosen_total",] == len(status) == 12
    assert found["fedpick_rounds_total",] == found["fedpick_round",] == 4
    assert found["fedpick_clients_enrolled",] == found["fedpick_clients_available",] == 4
    times = np.bincount(np.concatenate([record.ids for record in records]), minlength=4)
    assert found["fedpick_fairness_jain",] == pytest.approx(times.sum() ** 2 / (4 * (times**2).sum()))
    assert found["fedpick_round_duration_seconds_count",] == found["fedpick_round_duration_seconds_bucket", "+Inf"] == 4
    assert found["fedpick_round_duration_seconds_sum",] == pytest.approx(sum(record.seconds for record in records))
    spent = sum(record.wall["selection"] for record in records)
    assert found["fedpick_policy_duration_seconds_sum",] == pytest.approx(spent)
    buckets = [value for key, value in found.items() if key[0] == "fedpick_round_duration_seconds_bucket"]
    assert buckets == sorted(buckets)


def test_kinds_names_and_helps_follow_the_conventions(session):
    play(session)
    for name, family in families(scraped(session)).items():
        assert name.startswith("fedpick_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        if family.type == "histogram":
            assert name.endswith("_seconds")
        total = [sample.name.endswith("_total") for sample in family.samples]
        assert all(total) == (family.type == "counter")


def test_before_the_first_round_and_after_a_client_was_retired(session):
    found = numbers(scraped(session))
    assert found["fedpick_rounds_total",] == 0
    assert ("fedpick_fairness_jain",) not in found
    play(session)
    session.retire(["a"])
    play(session, names="bcdefgh")
    found = numbers(scraped(session))
    assert found["fedpick_clients_enrolled",] == 7
    assert 0 < found["fedpick_fairness_jain",] <= 1


def test_a_hostile_name_stays_in_its_label():
    from fedpick.server.prometheus import Metrics

    metrics = Metrics(":0", HOSTILE, "Session")
    (sample,) = families(metrics.text())["fedpick_info"].samples
    assert sample.labels["policy"].startswith('<script>"quote" \\ back')
    assert "\u202e" not in metrics.text()
    assert len(metrics.text()) < 6_000
    assert "fedpick_rounds_total" in metrics.text()


def test_off_unless_asked_and_only_while_open():
    assert fp.Session(fp.Uniform(cohort_size=2)).metrics is None
    session = fp.Session(fp.Uniform(cohort_size=2), metrics="127.0.0.1:0")
    assert session.metrics.url is None
    with session:
        url = session.metrics.url
        assert url.startswith("http://127.0.0.1:")
        play(session)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/"), timeout=10)
        port = url.split(":")[2].split("/")[0]
        with pytest.raises(fp.ConfigError, match="choose another port"):
            fp.Session(fp.Uniform(cohort_size=2), metrics=port).open()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)
    with session:
        play(session)
        assert numbers(scraped(session))["fedpick_rounds_total",] == 2  # counters never go back
    with pytest.raises(fp.SettingError, match=r"Session: metrics = 'nine'"):
        fp.Session(fp.Uniform(cohort_size=2), metrics="nine")


def test_the_port_is_free_again_when_a_folder_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("")
    session = fp.Session(fp.Uniform(cohort_size=2), metrics=":0", records=tmp_path / "file")
    with pytest.raises((fp.FedpickError, OSError)):
        session.open()
    assert session.metrics.url is None


def known(session):
    play(session)
    text = scraped(session)
    return {sample.name for family in families(text).values() for sample in family.samples}


def without_rounds():
    """The names that a session has under `fp.Buffered`, after a commit."""
    with fp.Session(fp.Uniform(1), pace=fp.Buffered(concurrency=1, size=1), metrics=0) as session:
        [task] = session.ask(["ada"])
        session.done(task.id, update=1.0)
        session.commit().close()
        text = scraped(session)
    return {sample.name for family in families(text).values() for sample in family.samples}


def test_alerts_dashboard_and_page_name_what_exists(session):
    names = known(session)
    more = without_rounds() - names
    assert len(more) == 5
    names |= more
    board = json.loads((DOCS / "files" / "grafana-fedpick.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    assert len(queries) > 15
    alerts = (DOCS / "files" / "prometheus-alerts.yml").read_text()
    used = [set(re.findall(r"\bfedpick_\w+", text)) for text in (*queries, alerts)]
    assert all(used)
    assert set().union(*used) <= names
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    page = (DOCS / "watching.md").read_text()
    listed = set(re.findall(r"^\| `(fedpick_\w+)`", page, flags=re.M))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) if "duration" in name else name for name in names}
    assert listed == bare


def test_the_alerts_are_yaml_with_what_prometheus_wants():
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((DOCS / "files" / "prometheus-alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["annotations"]["summary"]


def test_beyond_this_machine_a_token_is_needed(monkeypatch):
    monkeypatch.delenv("FEDPICK_TOKEN", raising=False)
    with pytest.raises(
        fp.ConfigError, match=r"metrics = '0.0.0.0:0' can be read by other machines, .* set FEDPICK_TOKEN"
    ):
        fp.Session(fp.Uniform(1), metrics="0.0.0.0:0")
    monkeypatch.setenv("FEDPICK_TOKEN", "correct-horse-battery")
    with fp.Session(fp.Uniform(1), metrics="0.0.0.0:0") as session:
        url = session.metrics.url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=10)
        asked = urllib.request.Request(url, headers={"Authorization": "Bearer correct-horse-battery"})
        with urllib.request.urlopen(asked, timeout=10) as reply:
            assert b"fedpick_rounds_total 0" in reply.read()
    with fp.Session(fp.Uniform(1), metrics=":0") as session, urllib.request.urlopen(session.metrics.url) as reply:
        assert reply.status == 200  # this machine needs none


def test_a_label_is_escaped_as_the_format_demands() -> None:
    assert quoted('a\\b"c') == '"a\\\\b\\"c"'
    assert quoted("a\\nb") == '"a\\\\nb"'  # a backslash and an n, no end of a line
