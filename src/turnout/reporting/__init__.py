"""Tables, pictures and pages that several answers share.

``words`` has sentences, ``answers`` and its neighbours tables for the terminal, ``drawing`` and
``pictures`` figures, ``page`` and ``training_report`` the files of a run. The package computes no
result.
"""
