"""Tables, pictures and pages that several answers share.

``words`` contains sentences and rounding; ``answers``, ``estimates``, ``audits`` and their
neighbours make tables and JSON; ``drawing`` and the two modules of pictures draw figures; ``page``
and ``training_report`` write the files of a run. This package computes no result: it formats
results of other packages.
"""
