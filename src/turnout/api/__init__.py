"""Public functions of ``import turnout as tn``, and the classes of their results."""
