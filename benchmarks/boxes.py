"""How many of 200 random boxes `design`, `fidelity` and `describe` work on.

Intervals and boxes that are not round: shifted, thin, far from zero, tiny or huge, each with a random
spectrum on it and a loose tolerance, so that each takes little time.
"""

import argparse
import time
import warnings
from collections import Counter

import jax
import numpy as np

import mercer

jax.config.update("jax_enable_x64", True)
# A box takes its time to compile, not to compute.
jax.config.update("jax_disable_most_optimizations", True)

TOLERANCE = 0.1
FIXED = [
    mercer.Box([-0.1, -0.1], [0.96, 1.11]),
    mercer.Interval(1000.0, 5000.0),
    mercer.Interval(0.3, 0.3 + 1e-6),
]


def draw_domain(rng: np.random.Generator) -> mercer.Box:
    """An interval, or one time in five a box, of any size and at any distance from zero."""
    dimension = 2 if rng.uniform() < 0.2 else 1
    size = 10.0 ** rng.uniform(-6, 4)
    lengths = size * rng.uniform(0.2, 1.0, dimension)
    # At most a million side lengths from zero: much further out floats cannot tell points apart.
    lower = rng.choice([0.0, -0.1, -1.0, 1.0, 1e3, 1e6]) * size * rng.uniform(0.1, 1.0, dimension)
    return mercer.Box(lower, lower + lengths)


def draw_spectrum(rng: np.random.Generator, domain: mercer.Box) -> mercer.spectra.Spectrum:
    """One of four families; length scales are in proportion to the box."""
    length = float(rng.uniform(0.2, 0.6)) * min(domain.lengths)
    variance = float(10.0 ** rng.uniform(-3, 3))
    modes = 100 if domain.dimension == 1 else 300
    families = [
        lambda: mercer.Laplacian(domain, modes) ** 2,
        lambda: mercer.Matern(float(rng.choice([1.5, 2.5])), length, variance, domain, modes),
        lambda: mercer.SquaredExponential(length, variance, domain, modes),
        lambda: mercer.BrownianMotion(modes, domain),
    ]
    return families[rng.integers(4 if domain.dimension == 1 else 3)]()


def make_case(index: int) -> mercer.spectra.Spectrum:
    """The spectrum of this number, the same in every run."""
    rng = np.random.default_rng(index)
    return draw_spectrum(rng, FIXED[index] if index < len(FIXED) else draw_domain(rng))


def try_all(spectrum: mercer.spectra.Spectrum, seed: int) -> str | None:
    """What is wrong with any of the three, or None."""
    try:
        prior = mercer.design(spectrum, TOLERANCE, key=jax.random.key(seed))
        error = mercer.fidelity(prior).relative_error
        words = str(mercer.describe(prior))
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    if not error <= TOLERANCE:
        return f"relative error {error:.3g}"
    return f"nan in: {words}" if "nan" in words else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="go on from this box")
    options = parser.parse_args()
    warnings.simplefilter("error")
    start, families, failed = time.monotonic(), Counter(), 0
    for i in range(options.first, options.count):
        spectrum = make_case(i)
        name = type(spectrum).__name__
        families[name] += 1
        failure = try_all(spectrum, i)
        failed += failure is not None
        corners = f"{spectrum.domain.lower} to {spectrum.domain.upper}"
        print(f"{i}: {name} on {corners}: {failure or 'works'}", flush=True)
    tried = options.count - options.first
    print(f"{tried - failed} of {tried} work, {time.monotonic() - start:.0f} s; {dict(families)}")


if __name__ == "__main__":
    main()
