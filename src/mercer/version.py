"""The version of this package, which stores of draws are marked with."""

__version__ = "0.1.0"
