"""A Flower app whose nodes check in at random rounds."""
