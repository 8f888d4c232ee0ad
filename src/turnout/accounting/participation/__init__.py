"""Privacy curves of one window for each kind of participation: upper and lower bounds.

`check_ins` has the curve of a client that draws one step of a window, `k_subset` the curve of a
client that draws several steps, and `k_subset_begun` the curve for the first steps of such a
window. `replace_one` compares two records of a client in such windows, `one_client` compares two
records if each step releases one client's message, and `fixed_size` has the curves of cohorts of a
fixed size. A *draw* is the random choice of steps that one client makes: `neighbours` makes the
blocks of a draw from these curves, and `drawn_blocks` counts the releases in which the client takes
part. `accounting.decomposition` uses `neighbours` and `drawn_blocks`.
"""
