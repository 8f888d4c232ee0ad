"""The shuffler of one round: messages in with their senders, the same messages out without.

No I/O, no clock and no randomness. What a shuffle shows is which messages there are and how often
(`turnout.accounting.shuffling` prices that multiset), so they leave in the order of their bytes:
nothing is left of the order of arrival that a bad permutation could keep.
"""

from __future__ import annotations

from turnout.core.errors import LocalProtocolError, RemoteProtocolError
from turnout.protocol.encodings import MessageEncoding


class Shuffler:
    r"""One round's messages, of one encoding, at most one body a client.

    A body of several messages (`HistogramEncoding`) leaves as single ones among everybody else's,
    so that nobody can tell which came together; a shuffle of each client's first messages, one of
    the second and so on, which is what is priced, shows more.

    Guarantees:
        What leaves is a function of the multiset of messages, and leaves once.
        A body that is no message, and a client's second message, are refused and not counted; an
        exact copy of a client's message is taken for it.

    >>> from turnout.protocol.encodings import MessageEncoding
    >>> from turnout.randomizers.vectors import LInfRandomizer
    >>> shuffler = Shuffler(MessageEncoding(LInfRandomizer(3, 1.0)))
    >>> shuffler.receive(0, bytes([5]))
    >>> shuffler.receive(1, bytes([2]))
    >>> shuffler.released()
    (b'\x02', b'\x05')
    """

    def __init__(self, encoding: MessageEncoding) -> None:
        self._encoding = encoding
        self._messages: dict[int, bytes] | None = {}

    def receive(self, client: int, body: bytes) -> None:
        """Keep a client's message until the round is over.

        Raises:
            RemoteProtocolError: no message of the encoding, or another one is there already.
            LocalProtocolError: the round is over.
        """
        messages = self._open()
        self._encoding.decode(body)
        if messages.setdefault(client, body) != body:
            raise RemoteProtocolError("a client sent a second message in one round")

    def released(self) -> tuple[bytes, ...]:
        """All messages, by their bytes; who sent them is forgotten.

        Raises:
            LocalProtocolError: the round is over.
        """
        messages = [
            single for body in self._open().values() for single in self._encoding.singles(body)
        ]
        self._messages = None
        return tuple(sorted(messages))

    def _open(self) -> dict[int, bytes]:
        if self._messages is None:
            raise LocalProtocolError("the shuffler's round is over")
        return self._messages
