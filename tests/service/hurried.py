"""Devices for which time passes faster, except the time for computing.

A task with steps of one hour has enough time for computing on a slow machine, and a test need not
wait for its end.
"""

import asyncio

from turnout.service.device import Limits, Pace

TIMES, LEAST_SECONDS = 7200, 0.02


async def shortened(seconds):
    """Sleep for a shortened time."""
    await asyncio.sleep(max(seconds / TIMES, min(seconds, LEAST_SECONDS)))


def hurry(setting=setattr):
    """Shorten all long waits of the devices in this process."""
    limits, _, random_bytes = Pace.__init__.__defaults__
    setting(Pace.__init__, "__defaults__", (limits, shortened, random_bytes))
    _, *others = Limits.__init__.__defaults__
    setting(Limits.__init__, "__defaults__", (3600.0 * TIMES, *others))


def hurry_fleet(setting=setattr):
    """Shorten all long waits of a fleet whose devices run in several processes."""
    from turnout.service.device import fleet

    hurry(setting)
    setting(fleet, "_work", hurried_work)


def hurried_work(*arguments):
    """Run a fleet process whose devices have shortened waits."""
    from turnout.service.device import fleet

    hurry()
    fleet._work(*arguments)
