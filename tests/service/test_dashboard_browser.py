"""The dashboard in a real browser: drawing, refreshing, login, and no browser errors.

With ``TURNOUT_PICTURES=docs/figures`` the tests write the pictures of docs/dashboard.md there.
"""

from __future__ import annotations

import importlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import dashboard_sample as sample
import pytest
import uvicorn
from forked import HANGS_SECONDS
from installed import program
from playwright import sync_api as playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from turnout.service.dashboard import mounting, pages
from turnout.service.dashboard.mounting import mount

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PASSWORD = "a password"
VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
INK = """(canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const d = context.getImageData(0, 0, copy.width, copy.height).data;
  let inked = 0;
  for (let i = 3; i < d.length; i += 4) inked += d[i] > 0;
  return inked;
}"""


def application(views: sample.FakeViews) -> Starlette:
    """Dashboard application whose login accepts one password."""
    app = Starlette()
    mount(app, views, lambda _request: "the-token")

    async def login(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        if (form["token"], form["password"]) != ("the-token", PASSWORD):
            page = pages.login_page("the-token", refused=True)
            return Response(page, 403, mounting.PAGE, "text/html")
        answer = RedirectResponse("/operator", 303)
        answer.set_cookie("session", "yes", httponly=True, samesite="strict")
        return answer

    async def logout(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        assert form["token"] == "the-token"
        answer = RedirectResponse("/", 303)
        answer.delete_cookie("session")
        return answer

    app.add_route("/operator/login", login, methods=["POST"])
    app.add_route("/operator/logout", logout, methods=["POST"])
    return app


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """Address of an application that runs in a thread."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # connections before the server runs are queued, not refused
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@dataclass
class Seen:
    """Browser page with its recorded errors and requests."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.add_init_script(VIOLATIONS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def require_quiet(self, address: str) -> None:
        """Fail on an error, a policy violation, or a request to another address."""
        assert self.complaints == []
        assert self.page.evaluate("window.violations") == []
        assert [url for url in self.asked if not url.startswith(address + "/")] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program("chromium"), args=FLAGS, timeout=1000 * HANGS_SECONDS
        )
        yield browser
        browser.close()


@contextmanager
def looking(chromium: Any, **options: Any) -> Iterator[Seen]:
    """Page in a new browser profile."""
    context = chromium.new_context(
        **{"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"} | options
    )
    context.set_default_timeout(1000 * HANGS_SECONDS)
    try:
        seen = Seen(context.new_page())
        seen.listen()
        yield seen
    finally:
        context.close()


def log_in(page: Any, address: str, password: str = PASSWORD) -> None:
    page.goto(f"{address}/operator")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def picture(page: Any, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("TURNOUT_PICTURES", tmp_path))
    page.mouse.move(0, 0)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    assert (folder / f"{name}.png").stat().st_size > 20_000


def drawn(page: Any) -> dict[str, int]:
    """Number of coloured pixels in each chart's canvas."""
    return {
        figure.get_attribute("id"): figure.eval_on_selector("canvas", INK)
        for figure in page.query_selector_all("figure.chart")
    }


def eventually(page: Any, holds: Callable[[], bool]) -> None:
    """Wait for a condition outside the page, since the content policy forbids waiting inside it."""
    for _ in range(10 * HANGS_SECONDS):
        if holds():
            return
        page.wait_for_timeout(100)
    pytest.fail("it never came to that")


def released(page: Any) -> int:
    """Number of released models that the page shows."""
    return int(page.inner_text(".big").split()[0])


def test_the_public_page_draws_its_charts_without_browser_errors(
    chromium: Any, tmp_path: Path
) -> None:
    views = sample.FakeViews()
    with served(application(views)) as address, looking(chromium) as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector("#chart-loss canvas")
        assert seen.asked.count(f"{address}/") == 1  # drawn immediately, not at the first refresh
        ink = drawn(seen.page)
        assert set(ink) == {"chart-epsilon", "chart-accuracy", "chart-loss"}
        assert min(ink.values()) > 2_000
        assert "ε ≤ 2.302" in seen.page.inner_text("#live")
        picture(seen.page, "dashboard", tmp_path)
        seen.page.hover("#chart-epsilon .u-over", position={"x": 30, "y": 30})
        shown = seen.page.locator("#chart-epsilon .u-value").all_text_contents()
        rows = seen.page.locator("#chart-epsilon-numbers tbody tr").all()
        assert shown in [row.locator("td").all_text_contents() for row in rows]
        seen.require_quiet(address)
    assert views.asked_for_operator == 0


def test_a_refresh_of_the_page_keeps_open_sections(chromium: Any) -> None:
    views = sample.FakeViews(
        sample.operator_view(40, public=sample.public_view(40, step_seconds=4))
    )
    with served(application(views)) as address, looking(chromium) as seen:
        page = seen.page
        page.goto(address)
        page.wait_for_selector("#chart-epsilon canvas")
        page.click("#chart-epsilon-numbers summary")
        ink = drawn(page)
        page.evaluate("document.querySelector('#chart-epsilon canvas').kept = true")
        rows = page.locator("#chart-accuracy-numbers tbody tr").count()
        views.view = sample.operator_view(41, public=sample.public_view(90, step_seconds=4))
        page.wait_for_selector("text=90 of 300 models released")
        assert all(more > ink[name] for name, more in drawn(page).items())
        assert page.locator("#chart-accuracy-numbers tbody tr").count() > rows
        assert page.locator("#chart-epsilon-numbers").get_attribute("open") is not None
        assert page.evaluate("document.querySelector('#chart-epsilon canvas').kept")
        views.view = sample.operator_view(300)
        page.wait_for_selector("#state.finished")
        assert page.locator("[data-seconds]").count() == 0
        seen.require_quiet(address)


def test_the_operator_can_log_in_view_the_page_and_log_out(chromium: Any, tmp_path: Path) -> None:
    views = sample.FakeViews()
    with served(application(views)) as address, looking(chromium) as seen:
        page = seen.page
        log_in(page, address, "another")
        page.wait_for_selector("text=The password is wrong.")
        assert views.asked_for_operator == 0
        assert "403" in seen.complaints.pop()  # a browser reports each refusal
        log_in(page, address)
        page.wait_for_selector("#chart-check-ins canvas")
        ink = drawn(page)
        assert len(ink) == 4
        assert min(ink.values()) > 2_000
        text = page.inner_text("#live")
        assert "1,431 of the plan's 1,437 clients are enrolled" in text
        assert "the coordinator is ready at step 105" in text
        picture(page, "dashboard-operator", tmp_path)
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{address}/")
        page.goto(f"{address}/operator")
        assert page.url == f"{address}/operator/login"
        seen.require_quiet(address)


def test_an_expired_session_leads_to_the_login_page(chromium: Any) -> None:
    public = sample.public_view(step_seconds=4)
    views = sample.FakeViews(sample.operator_view(public=public))
    with served(application(views)) as address, looking(chromium) as seen:
        log_in(seen.page, address)
        seen.page.wait_for_selector("#chart-check-ins canvas")
        seen.page.context.clear_cookies()
        seen.page.wait_for_url(f"{address}/operator/login")
        assert seen.page.locator("figure").count() == 0


def test_the_page_reports_an_unreachable_coordinator(chromium: Any) -> None:
    public = sample.public_view(step_seconds=4)
    views = sample.FakeViews(sample.operator_view(public=public))
    with looking(chromium) as seen:
        with served(application(views)) as address:
            seen.page.goto(address)
            assert not seen.page.is_visible("#connection")
            views.busy = True
            seen.page.wait_for_selector("text=The coordinator does not answer.")
            assert "187" in seen.page.inner_text("#live")
            views.busy = False
            seen.page.wait_for_selector("#connection", state="hidden")
        seen.page.wait_for_selector("text=The coordinator does not answer.")
        assert "187" in seen.page.inner_text("#live")


def test_the_page_fits_a_phone_and_follows_its_colour_scheme(chromium: Any) -> None:
    small = {"viewport": {"width": 360, "height": 700}}
    with served(application(sample.FakeViews())) as address, looking(chromium, **small) as seen:
        page = seen.page
        log_in(page, address)
        page.wait_for_selector("#chart-check-ins canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.goto(address)
        page.wait_for_selector("#chart-loss canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        light = page.screenshot()
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("#chart-loss canvas")
        assert page.locator("canvas").count() == 3
        assert min(drawn(page).values()) > 1_000
        assert page.screenshot() != light
        seen.require_quiet(address)


def test_page_texts_have_sufficient_contrast(chromium: Any) -> None:
    """The contrast is at least 4.5 to 1, as WCAG 2.1 requires of text."""
    luminance = """(name) => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(${name})`;
      const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3);
      const lin = parts.map((v) => v / 255).map((v) =>
        v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2];
    }"""
    pairs = [
        (text, ground)
        for text in ("--ink", "--soft", "--mark", "--good", "--bad", "--warn", "--limit")
        for ground in ("--ground", "--card")
    ]
    pairs += [("--warn", "--warn-ground"), ("--bad", "--bad-ground"), ("--ground", "--mark")]
    with served(application(sample.FakeViews())) as address, looking(chromium) as seen:
        seen.page.goto(address)
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme)
            for pair in pairs:
                dark, bright = sorted(seen.page.evaluate(luminance, name) for name in pair)
                assert (bright + 0.05) / (dark + 0.05) >= 4.5, (scheme, pair)


def test_the_page_shows_all_numbers_without_scripts(chromium: Any) -> None:
    app = application(sample.FakeViews())
    with served(app) as address, looking(chromium, java_script_enabled=False) as seen:
        seen.page.goto(address)
        text = seen.page.inner_text("#live")
        assert "187 of 300 models released" in text
        assert "ε ≤ 2.302" in text
        seen.page.click("#chart-loss-numbers summary")
        assert "2.3026" in seen.page.inner_text("#chart-loss-numbers")
        assert seen.page.locator("canvas").count() == 0


def test_the_dashboard_of_a_running_service_works_in_a_browser(
    chromium: Any, tmp_path: Path
) -> None:
    """Steps continue while a visitor watches, and the operator logs in and out."""
    real = importlib.import_module("dashboard_real")
    allowed = real.Allowed()
    with real.service(tmp_path, allowed) as address, looking(chromium) as seen:
        page = seen.page
        page.goto(address)
        page.wait_for_selector("#chart-loss canvas")
        first = released(page)
        allowed.steps += 2
        eventually(page, lambda: released(page) > first)
        page.get_by_role("link", name="Operator").click()
        page.get_by_label("Password").fill(real.PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("#chart-check-ins canvas")
        assert min(drawn(page).values()) > 2_000
        assert "step 0 is published" in page.inner_text(".log")
        now = released(page)
        allowed.steps += 2
        eventually(page, lambda: released(page) > now)
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{address}/operator/login")
        page.goto(f"{address}/operator")
        assert page.url == f"{address}/operator/login"
        seen.require_quiet(address)


def test_an_inline_script_is_blocked_and_detected(chromium: Any) -> None:
    """Negative control: the listener for policy violations detects a violation."""
    with served(application(sample.FakeViews())) as address, looking(chromium) as seen:
        seen.page.goto(address)
        seen.page.evaluate(
            """() => {
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.body.append(script);
              document.body.setAttribute("style", "color: red");
              const image = document.createElement("img");
              image.src = "https://elsewhere.invalid/x.png";
              document.body.append(image);
            }"""
        )
        eventually(seen.page, lambda: seen.page.evaluate("window.violations.length") >= 3)
        assert seen.page.evaluate("window.ran") is None
        with pytest.raises(AssertionError):
            seen.require_quiet(address)
