"""The dashboard of a running service shows committed and published data."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import fields

import httpx
import pytest
from dashboard_real import CAME, PASSWORD, Allowed, service
from forked import HANGS_SECONDS

from turnout.service.dashboard import mounting
from turnout.service.web.views import CurvePoint, PublicView


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("task"), Allowed()) as address:
        deadline = time.monotonic() + HANGS_SECONDS
        while httpx.get(f"{address}/public/summary.json").json()["released"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield address


def token_of(page: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found
    return found[1]


def log_in(client: httpx.Client) -> None:
    form = {"token": token_of(client.get("/operator/login").text), "password": PASSWORD}
    assert client.post("/operator/login", data=form).status_code == 303


def test_the_public_summary_has_the_documented_fields_and_no_counts(address: str) -> None:
    document = httpx.get(f"{address}/public/summary.json").json()
    assert (
        set(document)
        == {
            *(
                "task",
                "title",
                "plan",
                "population",
                "release",
                "relation",
                "unit",
                "trust_model",
                "step",
                "steps",
                "phase",
            ),
            *("seconds_left", "seconds_to_next_step", "step_seconds", "released", "head"),
            *("epsilon_spent", "epsilon_target", "delta", "curve", "charged"),
            *("sure", "sure_in_all"),
        }
        == {field.name for field in fields(PublicView)}
    )
    assert {*document["curve"][0]} == {"steps", "epsilon", "accuracy", "loss"}
    assert {*document["curve"][0]} == {field.name for field in fields(CurvePoint)}
    page = httpx.get(f"{address}/").text
    for word in ("Check-ins per step", "Enrolled", "Check-ins of this step", "Events"):
        assert word not in page


def test_the_public_page_shows_published_values(address: str) -> None:
    page = httpx.get(f"{address}/")
    digest = re.search(r'id="head">([0-9a-f]{64})<', page.text)
    released = re.search(r'class="big">(\d+) ', page.text)
    assert digest
    assert released
    last = f"{address}/v1/records?from={int(released[1]) - 1}&limit=1"
    (record,) = httpx.get(last).json()["records"]
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(canonical).hexdigest() == digest[1]
    for name, value in mounting.PAGE.items():
        assert page.headers[name] == value


def test_links_of_the_public_page_are_served(address: str) -> None:
    page = httpx.get(f"{address}/").text
    links = set(re.findall(r'(?:href|src)="(/[^"]*)"', page))
    assert {"/v1/charter", "/v1/records", "/operator"} <= links
    for link in links:
        answer = httpx.get(address + link, follow_redirects=True)
        assert answer.status_code == 200, link


def test_the_login_form_needs_its_csrf_token_and_the_password(address: str) -> None:
    with httpx.Client(base_url=address) as client:
        token = token_of(client.get("/operator/login").text)
        for form in ({"password": PASSWORD}, {"password": PASSWORD, "token": "x"}):
            assert client.post("/operator/login", data=form).status_code == 403
        refused = client.post("/operator/login", data={"token": token, "password": "wrong"})
        assert refused.status_code == 403
        assert "The password is wrong." in refused.text
        assert refused.headers["content-security-policy"] == mounting.POLICY
        assert client.get("/operator").status_code == 303
        assert client.get("/operator/summary.json").status_code == 401


def test_the_operator_page_shows_participation_counts_until_logout(address: str) -> None:
    with httpx.Client(base_url=address) as client:
        log_in(client)
        (cookie,) = client.cookies.jar
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite").lower() == "strict"
        page = client.get("/operator").text
        assert re.search(rf'<tr><td data-value="0">0</td><td data-value="{CAME}">{CAME}<', page)
        assert "of 12 invited" in page
        assert "step 0 is published" in page
        assert client.post("/operator/logout", data={"token": "x"}).status_code == 403
        assert client.post("/operator/logout", data={"token": token_of(page)}).status_code == 303
        assert client.get("/operator").status_code == 303
