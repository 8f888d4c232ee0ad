"""Privacy curves of one window of each participation, from above and from below.

`check_ins` has the curve of one step drawn from a window, `k_subset` that of several steps,
`replace_one` both under the replace-one relation. `neighbours` makes the blocks of a draw from
them, `drawn_blocks` counts the releases of a draw. `accounting.decomposition` uses them.
"""
