"""Privacy curves of one window of each participation, from above and from below.

`check_ins` has the curve of a client that draws one step of a window, `k_subset` the curve for
several steps, and `k_subset_begun` the curve for the remaining steps of a window. `replace_one`
compares two records in such windows, `one_client` in windows whose steps release one client's
message, `fixed_size` in cohorts of a fixed size. `neighbours` makes the blocks of a draw from these
curves, and `drawn_blocks` counts the releases of a draw. `accounting.decomposition` uses both.
"""
