"""Tables, pictures and pages that present results.

``words`` contains sentences and rounding; ``answers``, ``estimates``, ``audits`` and similar
modules make tables and JSON; ``drawing``, ``pictures`` and ``answer_pictures`` draw figures;
``page`` and ``training_report`` write the files of a run. This package computes no result: it
formats results of other packages.
"""
