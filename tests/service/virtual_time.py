"""Event loop with a virtual clock: sleeping takes no time, and every run is the same."""

import asyncio
import selectors


class _Jumping(selectors.SelectSelector):
    """Selector that advances the virtual clock where the loop would wait."""

    now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.selector = _Jumping()
        super().__init__(self.selector)

    def time(self):
        return self.selector.now


def virtually(main, *arguments):
    """Result of ``await main(*arguments)`` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(*arguments))
