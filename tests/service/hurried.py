"""Devices for whom time runs faster, all but the time that computing may take.

A task with steps of an hour has room for all computing on a slow machine, and nobody waits for it.
"""

import asyncio

from turnout.service.device import Limits, Pace

TIMES, LEAST_SECONDS = 7200, 0.02


async def shortened(seconds):
    """A sleep that is over sooner."""
    await asyncio.sleep(max(seconds / TIMES, min(seconds, LEAST_SECONDS)))


def hurry(setting=setattr):
    """Let the devices of this process wait for nothing long."""
    limits, _, random_bytes = Pace.__init__.__defaults__
    setting(Pace.__init__, "__defaults__", (limits, shortened, random_bytes))
    _, *others = Limits.__init__.__defaults__
    setting(Limits.__init__, "__defaults__", (3600.0 * TIMES, *others))


def hurry_fleet(setting=setattr):
    """The same for a fleet that has processes of its own."""
    from turnout.service.device import fleet

    hurry(setting)
    setting(fleet, "_work", hurried_work)


def hurried_work(*arguments):
    """A process of a fleet whose devices wait for nothing long."""
    from turnout.service.device import fleet

    hurry()
    fleet._work(*arguments)
