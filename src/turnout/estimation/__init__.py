"""What the server makes of the messages: tallies that merge, estimates with error bars."""

from turnout.estimation.frequency_tallies import FrequencyTally, collect

__all__ = ["FrequencyTally", "collect"]
