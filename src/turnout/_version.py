"""Version of the package: read by pyproject.toml, reports and the command line."""

__version__ = "0.1.0"
