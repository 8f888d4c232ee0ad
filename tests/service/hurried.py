"""Devices whose moments come soon, whatever their schedule: for tests that count on no times.

A task with long steps has room for all computing on a slow machine, and nobody waits for it.
"""

import asyncio

from turnout.service.device import Pace

LONGEST_SECONDS, MOMENT_SECONDS = 0.4, 0.05


async def shortened(seconds):
    """A sleep that is over soon."""
    await asyncio.sleep(min(seconds, LONGEST_SECONDS))


async def until_soon(pace, moment):
    """A moment that comes soon."""
    await asyncio.sleep(max(0.0, min(moment - pace.now(), MOMENT_SECONDS)))


def hurry(setting=setattr):
    """Let the devices of this process wait for nothing long."""
    limits, _, random_bytes = Pace.__init__.__defaults__
    setting(Pace.__init__, "__defaults__", (limits, shortened, random_bytes))
    setting(Pace, "until", until_soon)


def hurried_work(*arguments):
    """A process of a fleet whose devices wait for nothing long."""
    from turnout.service.device import fleet

    hurry()
    fleet._work(*arguments)
