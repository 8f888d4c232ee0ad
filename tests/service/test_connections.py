"""Table of connections: deadlines, and the order in which connections are closed."""

from turnout.service.web.connections import Awaits, Connections, proxies


class Held:
    """Connection that records what was done to it."""

    def __init__(self, name, log, unsent=0):
        self.name, self.log, self.waiting = name, log, unsent

    def give_up(self):
        self.log.append(("given up", self.name))

    def abort(self):
        self.log.append(("aborted", self.name))

    def unsent(self):
        return self.waiting


class World:
    def __init__(self, most=4, most_of_peer=4, exempt=lambda peer: False):
        self.now, self.log = 100.0, []
        self.table = Connections(most, most_of_peer, exempt, lambda: self.now)

    def came(self, name, peer="10.0.0.1", awaits=Awaits.HEAD, *, signed=False, **how):
        self.now += 0.001
        entry = self.table.admit(peer, Held(name, self.log, **how))
        if entry is not None:
            self.table.waits(entry, awaits)
            if signed:
                self.table.signed(entry)
        return entry

    def swept(self, later):
        self.now += later
        del self.log[:]
        assert not [*self.table.sweep()]
        return [name for _, name in self.log]


def test_a_full_table_closes_the_connection_that_was_idle_longest():
    w = World()
    for name in "abcdefg":
        assert w.came(name) is not None
    assert w.log == [("aborted", "a"), ("aborted", "b"), ("aborted", "c")]
    assert len(w.table) == 4


def test_a_full_table_closes_unauthenticated_connections_first():
    w = World()
    w.came("known", awaits=Awaits.NEXT, signed=True)
    for name in "abc":
        w.came(name)
    for name in "defg":
        w.came(name)
    assert ("aborted", "known") not in w.log
    for name in ("k1", "k2", "k3", "k4"):
        w.came(name, signed=True)
    assert w.log[-1] == ("aborted", "known")  # only signed connections are left


def test_a_full_table_closes_no_connection_with_an_open_answer_or_signed_body():
    w = World()
    for name in "ab":
        w.came(name, awaits=Awaits.ANSWER)
    for name in "cd":
        w.came(name, awaits=Awaits.BODY, signed=True)
    assert w.table.full
    assert w.came("late") is None
    assert not w.log


def test_a_full_table_closes_a_connection_with_an_unsigned_body():
    w = World(most=1)
    w.came("slow", awaits=Awaits.BODY)
    assert w.came("new") is not None
    assert w.log == [("aborted", "slow")]


def test_an_address_at_its_limit_loses_its_own_idle_connections():
    w = World(most=6, most_of_peer=3)
    w.came("other", peer="10.0.0.2")
    for name in "abcde":
        w.came(name)
    assert w.log == [("aborted", "a"), ("aborted", "b")]
    for name in "fg":
        w.came(name, peer="10.0.0.2")
    assert len(w.log) == 2


def test_connections_through_a_proxy_have_no_address_limit():
    w = World(most=8, most_of_peer=2, exempt=proxies("10.0.0.0/24"))
    for name in "abcdefgh":
        w.came(name)
    assert not w.log
    w.came("direct", peer="10.9.0.1")
    assert w.log == [("aborted", "a")]


def test_a_connection_with_progress_is_closed_last():
    w = World(most=2)
    first = w.came("first")
    w.came("second")
    w.table.waits(first, Awaits.NEXT)
    w.came("third")
    assert w.log == [("aborted", "second")]


def test_each_state_of_a_connection_has_a_separate_deadline():
    w = World(most=9, most_of_peer=9)
    for awaits in Awaits:
        w.came(awaits.text, awaits=awaits)
    assert w.swept(0.0) == []
    assert w.swept(5.0) == ["close"]
    assert set(w.swept(6.0)) == {"close", "first byte", "handshake", "head", "body"}
    assert "next request" in w.swept(20.0)
    assert "answer" not in w.swept(1e6)


def test_received_bytes_extend_the_deadline_of_a_body():
    w = World()
    entry = w.came("body", awaits=Awaits.BODY, signed=True)
    entry.received = 50_000
    assert w.swept(59.0) == []
    assert w.swept(2.0) == ["body"]


def test_a_slowly_read_answer_is_not_aborted():
    w = World()
    entry = w.came("reader", awaits=Awaits.NEXT, unsent=1000)
    assert w.swept(31.0) == []
    entry.held.waiting = 900
    assert w.swept(31.0) == []
    assert w.swept(31.0) == ["reader"]  # the client read nothing in the meantime


def test_closed_connections_free_their_table_entry():
    w = World(most=1)
    entry = w.came("a", awaits=Awaits.ANSWER)
    assert w.came("b") is None
    w.table.left(entry)
    w.table.left(entry)
    assert w.came("c") is not None
    assert not w.log
