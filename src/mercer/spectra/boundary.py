"""Boundary conditions of functions on a box."""

from collections.abc import Sequence

SIDES = ("dirichlet", "neumann")
Sides = tuple[str, str]
Boundary = tuple[Sides, ...]
BoundaryLike = str | Sequence[str] | Sequence[Sequence[str]]


def parse_boundary(boundary: BoundaryLike, dimension: int) -> Boundary:
    """The condition at the lower and upper side of each axis.

    `boundary` is one word for all sides, a word for each axis, or a pair for each axis;
    on an interval, a pair.

    >>> parse_boundary(("dirichlet", "neumann"), 1)
    (('dirichlet', 'neumann'),)
    """
    if isinstance(boundary, str):
        return _sides((boundary,) * dimension, boundary)
    entries = tuple(boundary)
    if dimension == 1 and len(entries) == 2 and all(isinstance(e, str) for e in entries):
        entries = (entries,)
    if len(entries) != dimension:
        raise ValueError(
            f"boundary needs one entry per axis, {dimension} of them, got {boundary!r}."
        )
    return _sides(entries, boundary)


def _sides(entries: Sequence, boundary: BoundaryLike) -> Boundary:
    pairs = tuple((e, e) if isinstance(e, str) else tuple(e) for e in entries)
    for pair in pairs:
        periodic = pair == ("periodic", "periodic")
        if len(pair) != 2 or not (periodic or all(side in SIDES for side in pair)):
            raise ValueError(
                "each side is 'dirichlet' or 'neumann', and an axis as a whole may be "
                f"'periodic'; got {boundary!r}."
            )
    return pairs
