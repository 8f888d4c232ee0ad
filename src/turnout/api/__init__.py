"""Public functions of ``import turnout as tn``, one file for each, and the answers they return."""
