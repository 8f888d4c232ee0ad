"""Blocks of each participation: the privacy loss of one window, from above and from below.

``check_ins`` covers one step of a window, ``k_subset`` several, ``replace_one`` the relation in
which a client is replaced, ``neighbours`` bounds for observed or dominated draws.
"""
