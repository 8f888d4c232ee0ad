"""Operator's view, authentication of the operator, and logs."""

import asyncio
import io
import json
import logging
import re
from dataclasses import asdict

import pytest
import structlog
from web_world import PASSWORD, world

from turnout.core.errors import ParameterError
from turnout.service.web import logs
from turnout.service.web.operators import COOKIE, password_of

FOR_THE_OPERATOR = ("/operator/summary.json", "/metrics")


def token_in(page):
    return re.search(r'name="token" value="([^"]+)"', page.text)[1]


async def ask(w, password):
    page = await w.http.get("/operator/login")
    form = {"password": password, "token": token_in(page)}
    return await w.http.post("/operator/login", data=form)


async def answered(w, asked):
    """Answer to a request, after the delay of a wrong password has passed."""
    answer = asyncio.create_task(asked)
    while not answer.done():
        await asyncio.sleep(0)
        if w.clock.waiting:
            w.clock.advance(1.0)
    return await answer


async def login(w, password=PASSWORD):
    return await answered(w, ask(w, password))


@pytest.mark.parametrize("path", FOR_THE_OPERATOR)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": PASSWORD},
        {"Authorization": "Basic !!!"},
        {"Cookie": f"{COOKIE}="},
        {"Cookie": f"{COOKIE}=forged.forged.forged"},
    ],
    ids=str,
)
def test_operator_data_are_refused_without_authentication(tmp_path, path, headers):
    async def main():
        async with world(tmp_path) as w:
            answer = await answered(w, w.http.get(path, headers=headers))
            assert (answer.status_code, answer.json()) == (401, {"detail": "for the operator"})

    asyncio.run(main())


def test_without_a_configured_password_nobody_can_log_in(tmp_path):
    async def main():
        async with world(tmp_path, password=None) as w:
            assert (await login(w, "")).status_code == 403
            for path in FOR_THE_OPERATOR:
                for given in ("", "None"):
                    header = {"Authorization": f"Bearer {given}"}
                    answer = await answered(w, w.http.get(path, headers=header))
                    assert answer.status_code == 401

    asyncio.run(main())


def test_a_session_starts_with_the_password_and_ends_at_logout(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            assert (await login(w, "wrong")).status_code == 403
            began = await login(w)
            assert began.status_code == 303
            cookie = began.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "samesite=strict" in cookie.lower()
            assert "Secure" not in cookie  # the test uses http
            for path in FOR_THE_OPERATOR:
                assert (await w.http.get(path)).status_code == 200
            page = await w.http.get("/operator")
            ended = await w.http.post("/operator/logout", data={"token": token_in(page)})
            assert ended.status_code == 303
            assert (await w.http.get("/metrics")).status_code == 401

    asyncio.run(main())


def test_a_cookie_is_secure_under_tls(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            w.http.base_url = "https://coordinator"
            assert "Secure" in (await login(w)).headers["set-cookie"]

    asyncio.run(main())


def test_a_form_posted_from_another_site_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for form in ({"password": PASSWORD}, {"password": PASSWORD, "token": "x"}):
                assert (await w.http.post("/operator/login", data=form)).status_code == 403
            before = token_in(await w.http.get("/operator/login"))
            await login(w)
            stale = await w.http.post("/operator/logout", data={"token": before})
            assert stale.status_code == 403
            long = await w.http.post("/operator/login", content=b"password=" + bytes(5000))
            assert long.status_code == 403

    asyncio.run(main())


def test_the_operator_page_shows_counts_and_the_public_page_does_not(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for client in range(7):
                await w.update(client, 0)
            operator = {"Authorization": f"Bearer {PASSWORD}"}
            view = (await w.http.get("/operator/summary.json", headers=operator)).json()
            assert (view["arrived"], view["enrolled"], view["invited"]) == (7, 20, 30)
            await w.step_over()
            w.running.terms.certainties.after(1)
            w.running.terms.certainties.settle()
            w.running._views.clear()
            view = (await w.http.get("/operator/summary.json", headers=operator)).json()
            count = {"step": 0, "checked_in": 7, "served": 7, "expected": pytest.approx(40 / 3)}
            assert view["counts"] == [count]
            public = (await w.http.get("/public/summary.json")).json()
            assert public == view["public"]
            promise = ("relation", "unit", "trust_model", "delta")
            assert [public[name] for name in promise] == [
                w.running.charter.scheme.relation.value,
                *("client", "central"),
                w.running.charter.delta,
            ]
            assert not {"arrived", "counts", "enrolled", "invited", "events"} & set(public)
            metrics = ""
            while "turnout_waiting_jobs 0.0" not in metrics:  # the step's write may be last
                metrics = (await w.http.get("/metrics", headers=operator)).text
            for line in (
                'turnout_requests_total{route="updates",status="200"} 7.0',
                "turnout_step 1.0",
                "turnout_epsilon_spent 0.41666",
                "turnout_commit_seconds_count",
                "turnout_commit_jobs_sum",
                "turnout_signed_request_seconds_count 7.0",
            ):
                assert line in metrics, line

    asyncio.run(main())


@pytest.mark.parametrize("finished", [False, True])
def test_public_answers_contain_no_counts_even_after_the_task_ended(tmp_path, finished):
    async def main():
        async with world(tmp_path) as w:
            for _ in range(6 if finished else 2):
                await w.step_over()
            view = await w.running.public()
            assert not re.search(r"checked|served|arriv|count|enrol", json.dumps(asdict(view)))

    asyncio.run(main())


def test_passwords_need_twelve_characters_and_are_never_printed(tmp_path):
    path = tmp_path / "password"
    for text in ("", "short", "   short   \n and more"):
        path.write_text(text)
        with pytest.raises(ParameterError, match="12 characters") as refusal:
            password_of(path)
        assert not text.strip() or "short" not in str(refusal.value)
    with pytest.raises(ParameterError, match="readable"):
        password_of(tmp_path / "none")
    path.write_text(f"{PASSWORD}\n")
    assert password_of(path) == PASSWORD


@pytest.fixture
def logged():
    """Text stream with the log output of a test."""
    names = ("turnout.service", "asyncio")
    before = {name: (log := logging.getLogger(name), log.handlers, log.level) for name in names}
    stream = io.StringIO()
    logs.configure(stream)
    yield stream
    structlog.reset_defaults()
    for log, handlers, level in before.values():
        log.handlers, log.propagate = handlers, True
        log.setLevel(level)


@pytest.mark.parametrize(
    "event",
    [
        {"client": 3, "step": 7},
        {"device": 3, "slot": 7},
        {"Client": 3, "where": {"step": 7}},
        {"several": [{"client": 3, "block": 7}]},
        {"public_key": "ab", "turn": 7},
    ],
    ids=str,
)
def test_log_lines_do_not_link_devices_to_steps(logged, event):
    logs.logger().info("came", **event)
    line = json.loads(logged.getvalue())
    assert line["withheld"]
    text = json.dumps(line)
    assert "7" in json.dumps({k: v for k, v in line.items() if k != "timestamp"})
    assert not re.search(r'"(client|Client|device|public_key)":', text)


@pytest.mark.parametrize("event", [{"client": 3}, {"step": 7, "seconds": 1.5}], ids=str)
def test_an_event_that_names_only_a_device_or_only_a_step_is_logged(logged, event):
    logs.logger().warning("came", **event)
    line = json.loads(logged.getvalue())
    assert event.items() <= line.items()
    assert line["level"] == "warning"


def test_requests_of_a_device_are_not_logged(tmp_path, logged):
    async def main():
        async with world(tmp_path) as w:
            await w.update(17, 0)
            await w.update(17, 0, value=3)
            await w.post("/v1/steps/1/updates", 17, w.body())
            await w.step_over()
            with w.running.storage.snapshot() as view:
                return " ".join(event.text for event in view.events(100))

    events = asyncio.run(main())
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    said = " ".join(str({**line, "timestamp": ""}) for line in lines)
    assert not re.search(r"\b17\b", said + events)
