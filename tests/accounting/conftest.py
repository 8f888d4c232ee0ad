"""Makes the reference results of this folder importable from tests in its subfolders."""
