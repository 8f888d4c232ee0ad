"""Limits on guesses of the operator's password, and ends of sessions, for every kind of request."""

import asyncio
from base64 import b64encode

import httpx
import pytest
from forked import HANGS_SECONDS
from test_web_operators import answered, ask, login, token_in
from web_world import PASSWORD, world

from turnout.service.web import operators
from turnout.service.web.operators import (
    COOKIE,
    MOST_WAITING,
    MOST_WRONG,
    SESSION_SECONDS,
    WRONG_SECONDS,
    source_of,
)

ROUTES = ("/operator/summary.json", "/metrics", "/operator", "/operator/login")
"""All routes with authentication; each also accepts the password in a request."""


def basic(password):
    return {"Authorization": "Basic " + b64encode(f"operator:{password}".encode()).decode()}


def bearer(password):
    return {"Authorization": f"Bearer {password}"}


def get(route, header):
    return lambda http, password: http.get(route, headers=header(password))


async def by_form(http, password):
    """Login by the form, whose page is served without a password."""
    token = token_in(await http.get("/operator/login"))
    return await http.post("/operator/login", data={"password": password, "token": token})


DOORS = {
    "form": by_form,
    **{
        f"{kind.__name__} {route}": get(route, kind) for kind in (bearer, basic) for route in ROUTES
    },
}
SLOW = {"form": 403, "/operator": 303, "/operator/login": 200}
"""Final status for a wrong password if it is not 401; pages show a login form."""


def after_waiting(door):
    return SLOW.get(door.split()[-1], 401)


def done(tasks):
    return [task for task in tasks if task.done()]


async def until(condition):
    async with asyncio.timeout(HANGS_SECONDS):
        while not condition():
            await asyncio.sleep(0)


def from_address(w, host):
    """HTTP client with another address than this machine."""
    transport = httpx.ASGITransport(app=w.app, client=(host, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://coordinator")


async def waits_in_line(w, door):
    """Check that of twenty concurrent wrong passwords some are refused and the others wait."""
    asked = [asyncio.create_task(DOORS[door](w.http, "wrong")) for _ in range(20)]
    await until(lambda: len(done(asked)) == 20 - MOST_WAITING)
    for turned_away in done(asked):
        answer = turned_away.result()
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.json() == {"detail": "too many wrong passwords; try again later"}
    for left in range(MOST_WAITING, 0, -1):
        await until(lambda n=left: w.clock.waiting == n)
        assert len(done(asked)) == 20 - left
        w.clock.advance(WRONG_SECONDS)
        await until(lambda n=left: len(done(asked)) > 20 - n)
    codes = [task.result().status_code for task in asked]
    assert codes.count(after_waiting(door)) == MOST_WAITING


def test_password_guesses_wait_in_a_queue_of_limited_length(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for door in DOORS:
                await waits_in_line(w, door)

    asyncio.run(main())


def test_all_routes_that_check_the_password_share_one_queue(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            doors = [*DOORS.values(), *DOORS.values()]
            asked = [asyncio.create_task(door(w.http, "wrong")) for door in doors]
            await until(lambda: len(done(asked)) == len(doors) - MOST_WAITING)
            assert {task.result().status_code for task in done(asked)} == {429}
            assert w.clock.waiting == MOST_WAITING
            text = w.running.metrics.text((0, 0)).decode()
            assert f'turnout_wrong_passwords_total{{answer="refused"}} {MOST_WAITING}.0' in text
            away = len(doors) - MOST_WAITING
            assert f'turnout_wrong_passwords_total{{answer="turned away"}} {away}.0' in text
            w.clock.advance(WRONG_SECONDS * MOST_WAITING)
            await asyncio.gather(*asked)

    asyncio.run(main())


async def lets_in(w, door, host):
    """Check that the correct password is answered while wrong passwords wait."""
    guessed = [asyncio.create_task(DOORS[door](w.http, "wrong")) for _ in range(50)]
    await until(lambda: len(done(guessed)) == 50 - MOST_WAITING)
    async with from_address(w, host) as http, asyncio.timeout(HANGS_SECONDS):
        answer = await DOORS[door](http, PASSWORD)
    assert answer.status_code == (303 if door.endswith(("form", "login")) else 200)
    w.clock.advance(operators.WRONG_WINDOW_SECONDS)
    await asyncio.gather(*guessed)


def test_the_correct_password_is_accepted_while_others_guess(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for number, door in enumerate(DOORS):
                await lets_in(w, door, f"203.0.113.{number}")
                await lets_in(w, door, "127.0.0.1")

    asyncio.run(main())


async def guess(w, http, times, header=bearer):
    """Statuses of several wrong passwords, sent one after another."""
    codes = []
    for _ in range(times):
        answer = await answered(w, http.get("/metrics", headers=header("wrong")))
        codes.append(answer.status_code)
    return codes


def test_passwords_after_too_many_guesses_are_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(operators, "WRONG_WINDOW_SECONDS", 1000.0)  # above their waiting time

    async def main():
        async with world(tmp_path) as w, from_address(w, "203.0.113.7") as http:
            assert await guess(w, http, MOST_WRONG + 3) == [401] * MOST_WRONG + [429] * 3
            for door in DOORS.values():
                assert (await door(http, PASSWORD)).status_code == 429
            async with from_address(w, "203.0.113.8") as other:
                assert (await other.get("/metrics", headers=bearer(PASSWORD))).status_code == 200
            w.clock.advance(1000.0)
            assert (await http.get("/metrics", headers=bearer(PASSWORD))).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "203.0.113.7"])
def test_an_address_that_logged_in_before_may_mistype_the_password_more_often(tmp_path, host):
    async def main():
        async with world(tmp_path) as w, from_address(w, host) as http:
            if host == "203.0.113.7":
                assert (await http.get("/metrics", headers=basic(PASSWORD))).status_code == 200
            assert set(await guess(w, http, 2 * MOST_WRONG)) == {401}
            assert (await http.get("/metrics", headers=bearer(PASSWORD))).status_code == 200

    asyncio.run(main())


def test_password_guesses_through_a_local_proxy_are_limited(tmp_path, monkeypatch):
    """If the proxy forwards no addresses, all clients have the address of this machine."""
    monkeypatch.setattr(operators, "WRONG_WINDOW_SECONDS", 1000.0)
    monkeypatch.setattr(operators, "MOST_WRONG_TRUSTED", 40)

    async def main():
        async with world(tmp_path) as w, from_address(w, "127.0.0.1") as http:
            assert await guess(w, http, 43) == [401] * 40 + [429] * 3
            assert (await http.get("/metrics", headers=bearer(PASSWORD))).status_code == 429
            w.clock.advance(1000.0)
            assert (await http.get("/metrics", headers=bearer(PASSWORD))).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("client", "source"),
    [
        (None, ""),
        (("203.0.113.7", 1), "203.0.113.7"),
        (("::ffff:203.0.113.7", 1), "203.0.113.7"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::", 1), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("::1", 1), "::1"),
        (("unix", 0), "unix"),
    ],
    ids=str,
)
def test_password_guesses_are_counted_by_ipv4_address_or_ipv6_network(client, source):
    connection = httpx.Request("GET", "http://x")
    connection.client = None if client is None else type("Address", (), {"host": client[0]})
    assert source_of(connection) == source


def test_the_number_of_addresses_with_counted_guesses_is_bounded(tmp_path, mutate):
    mutate(operators, "_MOST_SOURCES", 4)

    async def main():
        async with world(tmp_path) as w:
            for last in range(9):
                async with from_address(w, f"203.0.113.{last}") as http:
                    await guess(w, http, 1)
                    await http.get("/metrics", headers=bearer(PASSWORD))
            kept = w.running.operator_known.__self__._passwords
            assert len(kept._wrong) == len(kept._trusted) == 4

    asyncio.run(main())


async def logged_in(w):
    """Cookie of a new session."""
    w.http.cookies.clear()
    return (await login(w)).cookies[COOKIE]


async def opens(w, cookie):
    """Whether a cookie opens every route of the operator."""
    found = set()
    for route in ROUTES[:3]:
        w.http.cookies.clear()
        answer = await w.http.get(route, headers={"Cookie": f"{COOKIE}={cookie}"})
        found.add(answer.status_code == 200)
    assert len(found) == 1
    return found.pop()


async def log_out(w, cookie, **more):
    """Answer to the logout form of a session's page."""
    w.http.cookies.clear()
    headers = {"Cookie": f"{COOKIE}={cookie}"}
    form = {"token": token_in(await w.http.get("/operator", headers=headers)), **more}
    return await w.http.post("/operator/logout", data=form, headers=headers), form["token"]


def test_a_copied_cookie_is_invalid_after_logout(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            stolen, other = await logged_in(w), await logged_in(w)
            assert await opens(w, stolen)
            answer, token = await log_out(w, stolen)
            assert answer.status_code == 303
            assert not await opens(w, stolen)
            assert await opens(w, other)
            for cookie in (stolen, other):  # its form belongs to another session
                headers = {"Cookie": f"{COOKIE}={cookie}"}
                again = await w.http.post(
                    "/operator/logout", data={"token": token}, headers=headers
                )
                assert again.status_code == 403

    asyncio.run(main())


def test_logging_out_everywhere_ends_all_sessions(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            cookies = [await logged_in(w) for _ in range(3)]
            assert (await log_out(w, cookies[0], everywhere="yes"))[0].status_code == 303
            assert [await opens(w, cookie) for cookie in cookies] == [False] * 3

    asyncio.run(main())


def test_sessions_end_after_twelve_hours_or_when_there_are_too_many(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            first = await logged_in(w)
            cookies = [await logged_in(w) for _ in range(32)]
            assert not await opens(w, first)
            assert await opens(w, cookies[0])
            w.clock.advance(SESSION_SECONDS)
            assert not await opens(w, cookies[-1])

    asyncio.run(main())


def test_logout_without_a_session_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            form = {"token": token_in(await w.http.get("/operator/login"))}
            assert (await w.http.post("/operator/logout", data=form)).status_code == 403
            assert (await ask(w, PASSWORD)).status_code == 303

    asyncio.run(main())


def test_the_operator_page_does_not_contain_the_session_cookie(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            cookie = await logged_in(w)
            page = await w.http.get("/operator", headers={"Cookie": f"{COOKIE}={cookie}"})
            assert cookie not in page.text

    asyncio.run(main())
