"""Blocks of participation: what a draw of the clients who take part adds to a run."""
