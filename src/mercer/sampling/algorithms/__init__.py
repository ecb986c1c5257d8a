"""Sampling algorithms, one family a file."""
