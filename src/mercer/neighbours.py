"""Nearest rows by exact search: of new points among rows, and of rows among earlier ones.

By SciPy's tree in few dimensions, and by blocked matrix products in many, where a tree visits every
row.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

# Columns that spread over more than this count as dimensions, and how many of them a tree serves.
WIDE, MAX_TREE = 0.3, 12
# Distances that a block of a search by matrix products holds.
BLOCK_SIZE = 2**23

Points = Float[np.ndarray, "n d"]


class Search:
    """Search for the nearest of some rows, given in coordinates where nearness is Euclidean."""

    rows: np.ndarray
    tree: Any

    def __init__(self, rows: Points):
        self.rows = np.ascontiguousarray(rows, float)
        dimension = np.count_nonzero(self.rows.std(0) > WIDE)
        self.tree = cKDTree(self.rows) if dimension <= MAX_TREE else None

    def nearest(self, points: Points, count: int) -> Int[np.ndarray, "p c"]:
        """Indices of the nearest rows of each point, nearest first."""
        count = min(count, len(self.rows))
        if self.tree is not None:
            return self.tree.query(points, count, workers=-1)[1].reshape(len(points), count)
        size = max(1, BLOCK_SIZE // len(self.rows))
        blocks = [
            self._by_products(points[begin : begin + size], count)
            for begin in range(0, len(points), size)
        ]
        return np.concatenate(blocks)

    def _by_products(self, points: Points, count: int) -> Int[np.ndarray, "p c"]:
        squares = np.sum(self.rows**2, axis=1)[None] - 2 * points @ self.rows.T
        closest = np.argpartition(squares, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(squares, closest, axis=1), axis=1, kind="stable")
        return np.take_along_axis(closest, order, axis=1)


def nearest_others(
    rows: Points, chosen: Int[np.ndarray, " q"], count: int
) -> Int[np.ndarray, "q c"]:
    """Indices of the nearest other rows of some of the rows."""
    closest = Search(rows).nearest(rows[chosen], count + 1)
    # A row among its own neighbours goes to the end; where twins hide it, the farthest goes.
    order = np.argsort(closest == chosen[:, None], axis=1, kind="stable")
    return np.take_along_axis(closest, order, axis=1)[:, : closest.shape[1] - 1]


def nearest_earlier(
    rows: Points, count: int
) -> tuple[Int[np.ndarray, "n c"], Bool[np.ndarray, "n c"]]:
    """Indices of the nearest earlier rows of each row, and which of them there are.

    Rows should be in random order: then a search among the first 2ʲ rows finds enough earlier ones
    for each row of its second half.
    """
    total = len(rows)
    indices, present = np.zeros((total, count), int), np.zeros((total, count), bool)
    begin, end = 0, min(4 * count, total)
    while begin < total:
        search, wanted = Search(rows[:end]), 3 * count
        waiting = np.arange(begin, end)
        while len(waiting):
            closest = search.nearest(rows[waiting], wanted)
            earlier = closest < waiting[:, None]
            order = np.argsort(~earlier, axis=1, kind="stable")[:, :count]
            width = order.shape[1]
            indices[waiting, :width] = np.take_along_axis(closest, order, axis=1)
            present[waiting, :width] = np.take_along_axis(earlier, order, axis=1)
            enough = earlier.sum(1) >= np.minimum(count, waiting)
            waiting, wanted = waiting[~enough], 2 * wanted
        begin, end = end, min(2 * end, total)
    return np.where(present, indices, 0), present
