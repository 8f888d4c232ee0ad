"""Many bounds at one setting: what `turnout compare` puts side by side.

Two families of methods: for a client who checks in once a window (`METHODS` at a `Setting`) and for
clients whose messages are shuffled (`SHUFFLE_METHODS` at a `ShuffleSetting`).
"""

from turnout.accounting.published.comparison.check_ins import METHODS, Setting
from turnout.accounting.published.comparison.methods import Method, Quote
from turnout.accounting.published.comparison.shuffles import SHUFFLE_METHODS, ShuffleSetting

__all__ = ["METHODS", "SHUFFLE_METHODS", "Method", "Quote", "Setting", "ShuffleSetting"]
