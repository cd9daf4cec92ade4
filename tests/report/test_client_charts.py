"""The page's charts about clients have the numbers of the runs, and a browser draws them (slow)."""

import base64
import json
import re

import numpy as np
import pytest
from made_runs import make

import fedpick as fp
from browsers import axe, opened
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.report.page import client_charts
from fedpick.store import Tables, read_census, read_clients, read_rounds, read_selections

CLIENTS, ROUNDS, SEEDS = 30, 40, 2
POLICIES = ("uniform", "e3cs(quota=0.5)", "fedgs")


def charts(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found.group(1))["settings"][0]


def cells_of(drawn):
    """A map as an array, a row per bin of clients: 254ths that were away, 255 where it is not known."""
    return np.frombuffer(base64.b64decode(drawn["cells"]), np.uint8).reshape(drawn["height"], drawn["width"])


def accuracy_of(folder):
    """A made-up accuracy of each client, as after training."""
    columns = read_census(folder) | {"accuracy": np.linspace(0.2, 0.9, CLIENTS).astype(np.float32)}
    with Tables(folder) as tables:
        tables.describe_clients(columns, ROUNDS)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("who")
    world = {"name": "fedgs-ymf", "num_clients": CLIENTS, "volatility": "rates"}
    for policy in POLICIES:
        for seed in range(SEEDS):
            folder = root / f"{policy.split('(')[0]}-{seed}"
            execute(Config(policy, 5, ROUNDS, seed, world), folder)
            accuracy_of(folder)
    return root


@pytest.fixture(scope="module")
def page(root):
    return fp.load(root, reference="uniform").page()


def test_classes_have_the_means_of_their_clients(root, page):
    kinds = {each["label"]: each for each in charts(page)["classes"]}
    assert list(kinds) == ["success rate", "most frequent label", "amount of data"]  # all are equally fast
    rates = kinds["success rate"]
    assert rates["groups"] == [f"succeeds with {each}%" for each in (10, 30, 60, 90)]
    assert sum(rates["clients"]) == CLIENTS
    census = read_census(root / "e3cs-0")
    for name, column in (("success rate", "success"), ("most frequent label", "label")):
        for g, value in enumerate(np.unique(census[column])):
            inside = np.flatnonzero(census[column] == value)
            chosen = [
                np.isin(read_selections(root / f"e3cs-{seed}")["client"].to_numpy(), inside).sum() / len(inside)
                for seed in range(SEEDS)
            ]
            row = kinds[name]["rows"][1]
            assert row["chosen"]["mean"][g] == pytest.approx(np.mean(chosen), rel=1e-4)
            accuracy = np.linspace(0.2, 0.9, CLIENTS)[inside].mean()
            assert row["accuracy"]["mean"][g] == pytest.approx(accuracy, rel=1e-4)


def test_clients_that_hardly_differ_are_no_classes():
    names = ("few", "some", "many")
    assert client_charts._thirds(np.array([32.0, 34.0, 33.0, 32.0]), names, "") == []
    found = client_charts._thirds(np.array([1.0, 5.0, 2.0, 5.0, 9.0, 7.0]), names, " x")
    assert client_charts._thirds(np.array([10.0, 500.0, 20_000.0]), names, "")[2][0] == "many, about 20,000"
    assert [(name, mask.nonzero()[0].tolist()) for name, mask in found] == [
        ("few, about 1.5 x", [0, 2]),
        ("some, about 5 x", [1, 3]),
        ("many, about 8 x", [4, 5]),
    ]


def test_the_accuracy_of_clients_is_ranked(page):
    for line in charts(page)["accuracies"]:
        assert (line["mean"][0], line["mean"][50], line["mean"][-1]) == pytest.approx((0.2, 0.55, 0.9))


def test_an_accuracy_from_before_the_run_went_on_is_not_shown(tmp_path):
    execute(Config("uniform", 3, 6, 0, {"name": "ideal", "num_clients": 9}), tmp_path)
    with Tables(tmp_path) as tables:
        tables.describe_clients({"size": np.ones(9), "accuracy": np.ones(9)}, 5)
    assert charts(fp.load(tmp_path).page())["accuracies"] == [None]
    with Tables(tmp_path) as tables:
        tables.describe_clients({"size": np.ones(9), "accuracy": np.ones(9)}, 6)
    assert charts(fp.load(tmp_path).page())["accuracies"] != [None]


def test_stated_inclusion_is_what_was_observed(root, page):
    told = charts(page)["stated"]
    assert told[2] is None  # FedGS states none
    for i, name in enumerate(("uniform", "e3cs")):
        times, inverse, there, noise = np.zeros(CLIENTS), np.zeros(CLIENTS), np.zeros(CLIENTS), 0.0
        for seed in range(SEEDS):
            for row in read_selections(root / f"{name}-{seed}").to_pylist():
                times[row["client"]] += 1
                inverse[row["client"]] += 1 / row["inclusion"]
                noise += (1 - row["inclusion"]) / row["inclusion"] ** 2
            world = Config("uniform", 5, ROUNDS, seed, {"name": "fedgs-ymf", "num_clients": CLIENTS}).build().world
            state = world.init(seed)
            there += sum(world.view(state, world.draw(state, seed, t + 1)).available for t in range(ROUNDS))
        assert abs(inverse.sum() - there.sum()) < 4 * np.sqrt(noise)  # the policies keep their word
        seen = np.flatnonzero(times)
        assert told[i]["bin"] == seen.tolist()
        assert told[i]["stated"] == pytest.approx(times[seen] / inverse[seen], rel=1e-4)
        assert told[i]["observed"] == pytest.approx(times[seen] / there[seen], rel=1e-4)


def test_who_was_away_is_drawn_once_for_all_policies(root, page):
    away = charts(page)["away"]
    assert away["of"] == [[0, 1]] * 3  # the same seed, the same world
    for seed, drawn in enumerate(away["maps"]):
        assert (drawn["height"], drawn["width"], drawn["clients"]) == (CLIENTS, ROUNDS, CLIENTS)
        cells = cells_of(drawn)
        assert set(np.unique(cells)) == {0, 254}  # 255 is "not known"
        there = read_rounds(root / f"uniform-{seed}")["available"].to_pylist()
        assert (cells == 0).sum(axis=0).tolist() == there


def test_the_graph_joins_each_client_with_its_nearest(root, page):
    drawn = charts(page)["graphs"]
    assert drawn[:2] == [None, None]
    graph = drawn[2]
    features = Config("fedgs", 5, 1, 0, {"name": "fedgs-ymf", "num_clients": CLIENTS}).build().state.policy.distance
    for k in range(CLIENTS):
        joined = [a if b == k else b for a, b in graph["links"] if k in (a, b)]
        others = np.delete(features[k], k)
        assert features[k][joined].min() == others.min()
        assert np.sort(features[k][joined])[:3] == pytest.approx(np.sort(others)[:3])
    assert graph["times"] == np.bincount(read_selections(root / "fedgs-0")["client"], minlength=CLIENTS).tolist()
    for axis in ("x", "y"):
        assert (min(graph[axis]), max(graph[axis])) == pytest.approx((0, 1))
    points = np.column_stack([graph["x"], graph["y"]])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(CLIENTS)
    assert apart.min() > 0.02  # none lies on another


def test_old_folders_and_real_clients_simply_lack_these_charts(tmp_path):
    for folder in (make(tmp_path / "old"), make(tmp_path / "real", engine="flower", policy="uniform")):
        found = charts(fp.load(folder).page())
        assert found["classes"] == []
        assert found["accuracies"] == found["graphs"] == [None]
        assert found["away"] is None


def test_many_clients_are_bins(tmp_path):
    run = Config("uniform", 1000, 3, 0, {"name": "phones", "num_clients": 50_000})
    execute(run, tmp_path)
    page = fp.load(tmp_path).page()
    found = charts(page)
    assert len(page) < 1e6
    assert len(found["stated"][0]["bin"]) <= 100
    assert cells_of(found["away"]["maps"][0]).shape == (100, 3)
    assert [each["label"] for each in found["classes"]] == ["most frequent label", "amount of data"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_draws_and_reads_them(page, tmp_path, theme, width):
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with opened(file.as_uri(), width, dark=theme == "dark") as shown:
        shown.wait_for_selector("#f-gone canvas")
        assert shown.locator("#f-classes circle").count() == 4 * 3
        assert shown.locator("#f-accuracies .curve").count() == 3
        points = sum(len(each["bin"]) for each in charts(page)["stated"] if each)
        assert shown.locator("#f-stated circle").count() == points + 1  # and a ring
        assert shown.locator("#f-graphs .node").count() == CLIENTS
        assert shown.locator("#f-gone canvas").count() == 1
        spoken = {}
        for name in ("classes", "accuracies", "stated", "graphs", "gone"):
            shown.locator(f"#f-{name} [role=img]").focus()
            shown.keyboard.press("ArrowRight")
            spoken[name] = shown.locator("#live").text_content()
        assert spoken["classes"].startswith("succeeds with 10% (8 clients): uniform ")
        assert spoken["accuracies"].startswith("clients, worst first (%) 0: ")
        assert "observed" in spoken["stated"]
        assert spoken["graphs"].startswith("client 0: times chosen ")
        assert re.match(r"client 0, round 1: away (0|100)%", spoken["gone"])
        shown.locator("#f-classes select").select_option("most frequent label")
        shown.get_by_label("accuracy at the end").click()
        assert "accuracy at the end" in shown.locator("#f-classes svg").text_content()
        for name in ("classes", "accuracies", "stated", "graphs", "gone"):
            with shown.expect_download() as got:
                shown.locator(f"#f-{name} button", has_text="CSV").click()
            lines = got.value.path().read_text().splitlines()
            assert len(lines) > 5
            assert len({line.count(",") for line in lines if '"' not in line}) == 1
        shown.locator(".chip").nth(2).click()  # without FedGS there is no graph
        assert shown.locator("#f-graphs").is_hidden()
        assert shown.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert axe(shown) == []
        assert shown.said == []


# ---- a deployment: clients have names, join and leave

ODD = ['<script>alert("x")</script>', "'; --", "\u202eright to left", "long " * 100, "</script><!--", "=cmd()"]


def deploy(folder, rounds, state=None, **settings):
    """A session's records; `rounds` lists who is there in each, and the policy asks two of them."""
    with fp.Session(fp.Uniform(2), records=folder, state=state, **settings) as session:
        for there in rounds:
            with session.round(there) as r:
                for name in r.chosen:
                    r.done(name, loss=1.0, seconds=1.0)
    return folder


def test_a_deployment_shows_who_was_away_and_names_its_clients(tmp_path):
    with fp.Session(fp.Uniform(1), records=tmp_path) as session:
        for there in (["ada", "bob"], ["bob"], {"ada": None, "cyd": 20}, ["bob", "cyd"]):
            with session.round(there) as r:
                r.done(r.chosen[0], loss=1.0, seconds=1.0)
        session.retire(["ada"])
        with session.round(["cyd", "bob", "ada"]) as r:  # ada is a newcomer now
            r.done(r.chosen[0], loss=1.0, seconds=1.0)
    found = charts(fp.load(tmp_path).page())
    drawn = found["away"]["maps"][0]
    assert found["names"][drawn["names"]] == ["ada", "bob", "cyd", "ada"]
    assert found["maps"][0][0]["names"] == drawn["names"] == found["stated"][0]["names"]
    there, away, not_yet = 0, 254, 255
    assert cells_of(drawn).tolist() == [
        [there, away, there, away, away],
        [there, there, away, there, there],
        [not_yet, not_yet, there, there, there],
        [not_yet, not_yet, not_yet, not_yet, there],
    ]
    assert read_rounds(tmp_path)["joined"].to_pylist() == [2, 2, 3, 3, 4]
    assert read_census(tmp_path)["size"].tolist() == [1, 1, 20, 1]


def test_a_deployment_groups_its_clients_by_their_data(tmp_path):
    sizes = {f"c{k}": 10 * 4 ** (k // 3) for k in range(9)}
    found = charts(fp.load(deploy(tmp_path, [sizes] * 4)).page())
    assert [each["label"] for each in found["classes"]] == ["amount of data"]
    assert found["classes"][0]["clients"] == [3, 3, 3]
    assert found["away"] is None  # nobody was


def test_what_a_journal_restores_tells_who_was_away(tmp_path):
    rounds = [["a", "b", "c"], ["a", "b"], ["b", "c"], ["a", "b", "c", "d"]]
    with fp.Session(fp.Uniform(2), records=tmp_path / "run", state=tmp_path / "state") as session:
        for there in rounds:
            with session.round(there) as r:
                for name in r.chosen:
                    r.done(name, loss=1.0, seconds=1.0)
        restored = session.memory.journaled()
    assert [each.joined for each in restored] == [3, 3, 3, 4]
    assert [each.there for each in restored] == [None, b"\xff\xff\x00", b"\x00\xff\xff", None]


def test_rounds_that_do_not_tell_who_was_there_are_not_known(tmp_path):
    state = tmp_path / "state"
    deploy(None, [["a", "b", "c"], ["a", "b"]], state)
    deploy(tmp_path / "run", [["b", "c"], ["a", "b"]], state)
    found = charts(fp.load(tmp_path / "run").page())
    # Of the first round the number of clients says it: all were there.
    assert cells_of(found["away"]["maps"][0]).tolist() == [[0, 255, 254, 0], [0, 255, 0, 0], [0, 255, 0, 254]]


def test_hostile_names_of_clients_are_text_on_the_page(tmp_path):
    page = fp.load(deploy(tmp_path, [ODD, ODD[1:]])).page()
    names = charts(page)["names"][0]
    assert names[:2] == ODD[:2]
    assert names[2] == "?right to left"
    assert len(names[3]) == 60
    for name in ("<script>alert", "</script><!--"):
        assert name not in page  # only escaped


def test_many_real_clients_are_bins_without_names(tmp_path):
    few, many = [f"c{k}" for k in range(400)], [f"c{k}" for k in range(1000)]
    found = charts(fp.load(deploy(tmp_path, [few, few[::2], many[:500], many])).page())
    drawn = found["away"]["maps"][0]
    assert (found["names"], drawn["names"], found["stated"]) == ([], None, [None])
    cells = cells_of(drawn)
    assert cells.shape == (100, 4)
    assert (cells[:40, 0] == 0).all()
    assert (cells[40:, :2] == 255).all()
    assert cells[:40, 1] == pytest.approx(127, abs=2)  # every second was away
    assert (cells[:50, 2] == 0).all()
    assert (cells[50:, 2] == 255).all()  # they had not joined yet
    assert (cells[:, 3] == 0).all()


@pytest.mark.slow
def test_a_browser_reads_the_names_of_a_deployments_clients(tmp_path):
    rng, everyone = fp.rng.stream(0, 0, "made"), [*ODD, *(f"phone-{k}" for k in range(14))]
    rounds = [[name for name in everyone[: 8 + t // 2] if rng.random() < 0.7] or ["phone-0"] for t in range(30)]
    file = tmp_path / "page.html"
    file.write_text(fp.load(deploy(tmp_path / "run", rounds)).page(), encoding="utf-8")
    with opened(file.as_uri()) as shown:
        shown.wait_for_selector("#f-gone canvas")
        heard = []
        for name in ("maps", "gone"):
            shown.locator(f"#f-{name} canvas").focus()
            shown.keyboard.press("ArrowRight")
            heard.append(shown.locator("#live").text_content())
        assert "the first to join on top" in shown.locator("#f-gone .hint").text_content()
        assert shown.locator("#f-gone .beside li").all_text_contents() == charts(file.read_text())["names"][0]
        assert "not joined yet" in shown.locator("#f-gone .tools").text_content()
        with shown.expect_download() as got:
            shown.locator("#f-gone button", has_text="CSV").click()
        lines = got.value.path().read_text().splitlines()
        assert shown.said == []
        assert axe(shown) == []
    order = read_clients(tmp_path / "run")
    first = order[0] if len(order[0]) <= 40 else order[0][:39] + "…"
    assert all(said.startswith(f"client {first}, round 1: ") for said in heard)
    assert lines[0].endswith("share_away,names")
    assert len(lines) == 1 + 30 * len(order)
