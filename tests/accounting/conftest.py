"""Its folder holds the truths, written down on their own, that tests of every room compare with."""
