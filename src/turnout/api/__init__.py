"""The verbs behind ``import turnout as tn``, and what they return."""
