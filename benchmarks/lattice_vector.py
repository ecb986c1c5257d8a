"""Construct the generating vector of `mercer.lattice`, component by component.

For n = 2^m points, m = 6, ..., 16, the squared worst-case error of a shifted
rank-1 lattice in the weighted space of smooth periodic functions is

    P2(z) = -1 + (1/n) sum_k prod_j (1 + g_j 2 pi^2 B2({k z_j / n})),   g_j = 1/j.

Each component minimises the largest ratio, over m, of P2 to the best P2 that
any choice of that component reaches at that m, so that one vector serves every
power of two. Run `python benchmarks/lattice_vector.py`; it prints the vector.
"""

import argparse

import numpy as np


def bernoulli_kernel(size: int) -> np.ndarray:
    """2 pi^2 B2(k / n) for k = 0, ..., n - 1."""
    x = np.arange(size) / size
    return 2 * np.pi**2 * (x**2 - x + 1 / 6)


def candidate_errors(products: np.ndarray, weight: float, block: int = 256) -> np.ndarray:
    """P2 for each odd candidate z < n, given the product over earlier components."""
    size = products.shape[0]
    kernel = bernoulli_kernel(size)
    steps = np.arange(size, dtype=np.int64)
    odd = np.arange(1, size, 2, dtype=np.int64)
    errors = np.empty(odd.size)
    for start in range(0, odd.size, block):
        candidates = odd[start : start + block]
        rows = kernel[(candidates[:, None] * steps) & (size - 1)]
        errors[start : start + block] = rows @ products * (weight / size)
    return errors + products.mean() - 1


def construct(dimension: int, low: int, high: int) -> list[int]:
    """The generating vector, good for 2^low to 2^high points at once."""
    products = {m: np.ones(2**m) for m in range(low, high + 1)}
    vector: list[int] = []
    for j in range(1, dimension + 1):
        ratio = np.zeros(2 ** (high - 1))
        for m, product in products.items():
            errors = candidate_errors(product, 1 / j)
            repeated = np.tile(errors / errors.min(), 2 ** (high - m))
            ratio = np.maximum(ratio, repeated)
        best = int(2 * np.argmin(ratio) + 1)
        vector.append(best)
        for m in products:
            size = 2**m
            index = (best * np.arange(size, dtype=np.int64)) & (size - 1)
            products[m] *= 1 + bernoulli_kernel(size)[index] / j
        print(j, best, float(ratio.min()), flush=True)
    return vector


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--low", type=int, default=6)
    parser.add_argument("--high", type=int, default=16)
    arguments = parser.parse_args()
    print(construct(arguments.dimension, arguments.low, arguments.high))
