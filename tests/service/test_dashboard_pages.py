"""Contents of the dashboard pages, tested without a browser."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tomllib
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import dashboard_sample as sample
import httpx
import pytest
from dashboard_sample import Seen
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from turnout.service.dashboard import charts, mounting, pages
from turnout.service.dashboard.charts import band
from turnout.service.dashboard.mounting import mount
from turnout.service.dashboard.pages import operator_facts, public_facts
from turnout.service.storage.interface import LogEvent
from turnout.service.web.views import OperatorView, StepCount

STATIC = Path(str(resources.files("turnout.service.dashboard").joinpath("static")))
HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)> {{ 7*7 }} </main></pre>"""


class Visitor:
    """Client of an application without a network, which follows no redirection."""

    def __init__(self, views: sample.FakeViews) -> None:
        self.app = Starlette()
        mount(self.app, views, lambda _request: "the-token")

    def get(self, path: str, *, session: str = "", background: bool = False) -> httpx.Response:
        mounting = {"Cookie": f"session={session}"} if session else {}
        mounting |= {"HX-Request": "true"} if background else {}

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.get(path, headers=mounting)

        return asyncio.run(asked())


def all_pages(view: OperatorView) -> list[str]:
    return [
        pages.public_page(view.public),
        pages.public_page(view.public, fragment=True),
        pages.operator_page(view, "the-token"),
        pages.operator_page(view, "the-token", fragment=True),
        pages.login_page("the-token"),
        pages.login_page("the-token", refused=True),
    ]


# -- what is there -------------------------------------------------------------------------------


def test_the_public_page_shows_task_and_guarantee() -> None:
    view = sample.public_view()
    text = Seen(pages.public_page(view)).text
    for fact in (
        "logistic on digits",
        "187 of 300 models released",
        "Next model in 26 s; now accepting check-ins.",
        "ε ≤ 2.302 of 3; 0.6986 left",
        "relation add-remove",
        "unit client",
        "trust central",
        "δ 0.0001",
        "1,437; n counts honest devices",
        "94.72%",
        "turnout ledger verify FILE",
        view.head.partition(":")[2],
        view.task,
        'law = "check-in"',
    ):
        assert fact in text, fact


def test_under_local_trust_no_coordinator_noise_is_shown() -> None:
    view = sample.public_view(trust_model="local", relation="replace-one", sure_in_all=(0.9, 0.9))
    page = pages.public_page(view)
    assert "all messages, each randomized on its device" in page
    assert "noisy sum" not in page
    assert "sees every message of the client" in page
    assert "noisy sum" in pages.public_page(sample.public_view())  # negative control


def test_pages_show_epsilon_with_relation_unit_and_trust_model() -> None:
    for page in all_pages(sample.operator_view())[:4]:
        text = Seen(page).text
        after = text[text.index("ε ≤") :][:200]
        assert "relation add-remove unit client trust central" in after


@pytest.mark.parametrize(
    ("view", "state", "said"),
    [
        (sample.public_view(), "running", "Next model in"),
        (sample.public_view(300), "finished", "Finished: all steps are over."),
        (sample.public_view(phase="failed"), "stopped", "Stopped: it reports “failed”."),
    ],
)
def test_the_public_page_describes_each_state_of_a_task(
    view: object, state: str, said: str
) -> None:
    page = Seen(pages.public_page(view))  # type: ignore[arg-type]
    assert ("span", {"class": f"pill {state}", "id": "state"}) in page.elements
    assert said in page.text
    assert any("data-seconds" in attributes for _, attributes in page.elements) == (
        state == "running"
    )


def test_the_pages_of_a_new_task_show_no_model() -> None:
    view = sample.operator_view(0, counts=(), events=())
    view = replace(view, public=sample.public_view(0, curve=(), charged=()))
    for page in all_pages(view):
        assert "nan" not in page.lower()
    text = Seen(pages.operator_page(view, "")).text
    assert "0 of 300 models released" in text
    assert "No events yet" in text
    assert "No data yet" in text


def test_values_that_are_not_numbers_are_listed_and_not_drawn() -> None:
    view = sample.public_view()
    broken = replace(view.curve[-1], accuracy=None, loss=None)
    view = replace(view, curve=(*view.curve[:-1], broken))
    accuracy, loss = charts.quality_charts(view)
    assert accuracy.rows[-1][1] == loss.rows[-1][1] == charts.Cell("not a number", "")
    assert "not a number" in Seen(pages.public_page(view)).text
    warnings = operator_facts(replace(sample.operator_view(), public=view)).warnings
    assert "An evaluation of the model is not a number." in warnings


@settings(max_examples=300)
@given(spent=st.floats(0, 3), target=st.floats(1e-3, 1e3), delta=st.floats(1e-12, 0.4))
def test_dashboard_numbers_are_rounded_conservatively(
    spent: float, target: float, delta: float
) -> None:
    spent = min(spent, target)
    view = sample.public_view(epsilon_spent=spent, epsilon_target=target, delta=delta)
    facts = public_facts(view)
    assert float(facts.spent) >= spent
    assert float(facts.target) >= target
    assert float(facts.delta) >= delta
    assert float(facts.left) <= target - spent
    assert view.sure is not None
    assert facts.accuracy.share >= 100 * max(view.sure)
    assert all(0 <= bar.share <= 100 for bar in (facts.progress, facts.privacy, facts.accuracy))


# -- what is not there ---------------------------------------------------------------------------


def with_sentinels() -> tuple[OperatorView, list[str]]:
    """Operator's view whose numbers are found nowhere else."""
    sentinels = [7_654_300 + i for i in range(9)]
    s = iter(sentinels)
    view = sample.operator_view(
        invited=next(s),
        enrolled=next(s),
        arrived=next(s),
        arrived_expected=float(next(s)),
        counts=tuple(StepCount(i, next(s), next(s), 100.0) for i in range(2)),
        waiting_jobs=next(s),
        waiting_bytes=0,
        events=(LogEvent(0.0, "error", "sentinel event"),),
    )
    forms = [f for n in sentinels for f in (str(n), f"{n:,}")]
    return view, [
        *forms,
        "sentinel event",
        "Check-ins per step",
        "checked_in",
        "served",
        "enrolled",
    ]


def test_the_public_page_and_json_contain_no_counts() -> None:
    view, sentinels = with_sentinels()
    client = Visitor(sample.FakeViews(view))
    answers = [
        client.get("/").text,
        client.get("/", background=True).text,
        client.get("/", session="yes").text,
        json.dumps(asdict(view.public)),
    ]
    for answer in answers:
        assert [s for s in sentinels if s in answer] == []
    # positive control: the search finds them on the operator's page
    operators = client.get("/operator", session="yes").text
    assert sum(s in operators for s in sentinels) >= 8


def test_the_public_page_does_not_depend_on_data_for_the_operator() -> None:
    ordinary, strange = sample.operator_view(), with_sentinels()[0]
    pages_of = [Visitor(sample.FakeViews(v)).get("/").content for v in (ordinary, strange)]
    assert pages_of[0] == pages_of[1]


def test_an_unchanged_public_page_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    views, rendered = sample.FakeViews(), []
    render = pages.public_page
    monkeypatch.setattr(pages, "public_page", lambda *a, **k: rendered.append(k) or render(*a, **k))
    visitor = Visitor(views)
    old = [visitor.get("/").text for _ in range(3)]
    parts = [visitor.get("/", background=True).text for _ in range(2)]
    assert rendered == [{"fragment": False}, {"fragment": True}]
    views.view = sample.operator_view(188)
    assert "188 of 300" in Seen(visitor.get("/").text).text
    assert "188 of 300" in Seen(visitor.get("/", background=True).text).text
    assert len({*old, *parts}) == 2


def test_the_operator_page_is_served_only_to_a_logged_in_operator() -> None:
    views = sample.FakeViews()
    client = Visitor(views)
    whole = client.get("/operator")
    part = client.get("/operator", background=True)
    wrong = client.get("/operator", session="no")
    assert (whole.status_code, whole.headers["location"]) == (303, "/operator/login")
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/operator/login")
    assert wrong.status_code == 303
    assert whole.content == part.content == wrong.content == b""
    assert views.asked_for_operator == 0
    assert client.get("/operator", session="yes").status_code == 200
    assert client.get("/operator/login", session="yes").status_code == 303


def test_forms_contain_their_csrf_token() -> None:
    for page in (pages.login_page("x<y"), pages.operator_page(sample.operator_view(), "x<y")):
        seen = Seen(page)
        forms = [a for tag, a in seen.elements if tag == "form"]
        tokens = [a for tag, a in seen.elements if tag == "input" and a.get("name") == "token"]
        assert [form["method"] for form in forms] == ["post"]
        assert [token["value"] for token in tokens] == ["x<y"]
        assert "x<y" not in page


# -- what browsers are told ----------------------------------------------------------------------


def test_every_dashboard_answer_has_the_security_headers() -> None:
    client = Visitor(sample.FakeViews())
    answers = [
        client.get("/"),
        client.get("/operator"),
        client.get("/operator", session="yes"),
        client.get("/operator", background=True),
        client.get("/operator/login"),
        client.get("/static/dashboard.js"),
        client.get("/static/vendor/htmx.min.js"),
    ]
    for answer in answers:
        for name, value in mounting.SECURITY.items():
            assert answer.headers[name] == value, (answer.url, name)
    for answer in answers[:5]:
        assert answer.headers["cache-control"] == "no-store"
    assert "cookie" in answers[0].headers["vary"].lower()


def test_the_content_security_policy_forbids_inline_and_remote_code() -> None:
    rules = dict(rule.split(" ", 1) for rule in mounting.POLICY.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in mounting.POLICY
    assert ":" not in mounting.POLICY


@pytest.mark.parametrize("number", range(6))
def test_pages_satisfy_the_content_security_policy(number: int) -> None:
    page = Seen(all_pages(sample.operator_view())[number])
    for tag, attributes in page.elements:
        assert tag not in {"style", "iframe", "object", "embed", "base"}
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith(("on", "hx-on"))]
        assert "js:" not in " ".join(value or "" for value in attributes.values())
        if tag == "script":
            assert attributes["src"]
        for name in ("src", "href", "action", "hx-get"):
            address = attributes.get(name) or "/"
            assert address[0] in "/#", address
            assert not address.startswith("//"), address


def test_markup_in_texts_is_escaped() -> None:
    plain = sample.operator_view()
    public = sample.public_view(title=HOSTILE, plan=HOSTILE, phase=HOSTILE, head=f"1:{HOSTILE}")
    events = (LogEvent(0.0, HOSTILE, HOSTILE),)
    view = replace(plain, public=public, events=events)
    quiet_public = sample.public_view(title="a", plan="b", phase="c", head="1:d")
    quiet = replace(plain, public=quiet_public, events=(LogEvent(0.0, "info", "e"),))
    for hostile, calm in zip(all_pages(view), all_pages(quiet), strict=True):
        assert "<img" not in hostile
        assert "49" not in set(re.findall(r"\d+", hostile)) - set(re.findall(r"\d+", calm))
        tags = [[tag for tag, _ in Seen(page).elements] for page in (hostile, calm)]
        assert tags[0] == tags[1]


# -- charts and band -----------------------------------------------------------------------------


def test_dashboard_charts_contain_the_numbers_of_the_view() -> None:
    view = sample.operator_view()
    accuracy, loss = charts.quality_charts(view.public)
    points = view.public.curve
    assert [float(row[1].value) for row in accuracy.rows] == [p.accuracy for p in points]
    assert [float(row[1].value) for row in loss.rows] == [p.loss for p in points]
    came = charts.check_in_chart(view)
    assert [int(row[1].value) for row in came.rows] == [c.checked_in for c in view.counts]
    expected = band(sample.EXPECTED, sample.POPULATION)
    assert [float(cell.value) for cell in came.rows[0][3:]] == [
        expected.mean,
        expected.low,
        expected.high,
    ]
    epsilon = charts.epsilon_chart(view.public)
    spent = {int(r[0].value): float(r[1].value) for r in epsilon.rows if r[1].value}
    assert max(spent) == view.public.released
    assert spent[187] == view.public.epsilon_spent
    assert {float(row[3].value) for row in epsilon.rows} == {3.0}
    for cell in (cell for row in epsilon.rows for cell in row[1:] if cell.value):
        assert float(cell.value) <= float(cell.text) <= float(cell.value) * 1.001
    assert int(epsilon.rows[-1][0].value) == 300
    assert float(epsilon.rows[-1][2].value) == view.public.charged[-1][1]


def test_thinned_charts_keep_their_first_and_last_point() -> None:
    assert charts.thinned(list(range(401)))[:2] == [0, 1]
    for length in (1, 2, 399, 400, 401, 100_000):
        kept = charts.thinned(list(range(length)))
        assert kept[0] == 0
        assert kept[-1] == length - 1
        assert len(kept) == min(length, charts.LONGEST)
        assert len(set(kept)) == len(kept)
    counts = tuple(StepCount(i, i, i, 100.0) for i in range(1000))
    chart = charts.check_in_chart(sample.operator_view(counts=counts))
    assert [int(row[0].value) for row in chart.rows] == list(range(600, 1000))
    assert "The last 400 steps; 600 earlier ones are not shown." in chart.text


def test_the_dashboard_script_draws_every_kind_of_column() -> None:
    script = (STATIC / "dashboard.js").read_text()
    known = set(re.findall(r"^    (\w+): \{ width", script, re.M)) | {"x", "hidden"}
    view = sample.operator_view()
    every = (*public_facts(view.public).charts, charts.check_in_chart(view))
    assert {column.kind for chart in every for column in chart.columns} <= known
    assert all(len(row) == len(chart.columns) for chart in every for row in chart.rows)
    assert len({chart.name for chart in every}) == len(every)


def test_third_party_files_match_their_listed_digests_and_licences() -> None:
    folder = STATIC / "vendor"
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (\S+) \| .*, (\S+) \| ([0-9a-f]{64}) \|$",
        (folder / "README.md").read_text(),
        re.M,
    )
    named = {"README.md"}
    for name, _package, version, licence, digest in rows:
        data = (folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest, name
        assert (folder / licence).read_text().strip()
        assert version in data.decode() or name.endswith(".css")
        named |= {name, licence}
    assert {path.name for path in folder.iterdir()} == named


def test_dashboard_pages_load_no_remote_files() -> None:
    for name in ("dashboard.js", "dashboard.css"):
        text = (STATIC / name).read_text()
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\beval\b|innerHTML", text), name


def test_all_dashboard_files_are_in_the_package() -> None:
    root = Path(__file__).parents[2]
    package = root / "src/turnout/service/dashboard"
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["turnout.service.dashboard"]
    covered = {path for pattern in globs for path in package.glob(pattern) if path.is_file()}
    present = {
        path for path in package.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert present == covered
    assert len(present) > 10
