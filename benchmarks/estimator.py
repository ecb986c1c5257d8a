"""`MercerRegressor()` with its defaults: ten data sets against scikit-learn's process, and two gaps.

python benchmarks/estimator.py sets
python benchmarks/estimator.py gaps
"""

import argparse
import json
import time
import warnings

import numpy as np
from matplotlib import cbook
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import KFold

from mercer import MercerRegressor, data


def noisy(function, dimension, rows, seed, noise=0.1):
    """Uniform rows in the unit cube, a function of them, and noise relative to its spread."""
    random = np.random.default_rng(seed)
    x = random.uniform(size=(rows, dimension))
    y = function(x)
    return x, y + noise * y.std() * random.standard_normal(rows)


def borehole(x):
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    rw, r, tu, hu, tl, hl, length, kw = (low + x * (high - low)).T
    ratio = np.log(r / rw)
    below = ratio * (1 + 2 * length * tu / (ratio * rw**2 * kw) + tu / tl)
    return 2 * np.pi * tu * (hu - hl) / below


def piston(x):
    low = np.array([30, 0.005, 0.002, 1000, 90000, 290, 340])
    high = np.array([60, 0.020, 0.010, 5000, 110000, 296, 360])
    mass, area, volume, k, pressure, ambient, filling = (low + x * (high - low)).T
    a = pressure * area + 19.62 * mass - k * volume / area
    v = area / (2 * k) * (np.sqrt(a**2 + 4 * k * pressure * volume / filling * ambient) - a)
    stiffness = k + area**2 * pressure * volume / filling * ambient / v**2
    return 2 * np.pi * np.sqrt(mass / stiffness)


def circuit(x):
    low = np.array([50, 25, 0.5, 1.2, 0.25, 50])
    high = np.array([150, 70, 3, 2.5, 1.2, 300])
    b1, b2, f, c1, c2, beta = (low + x * (high - low)).T
    vb = 12 * b2 / (b1 + b2)
    gain = beta * (c2 + 9)
    return (
        (vb + 0.74) * gain / (gain + f)
        + 11.35 * f / (gain + f)
        + 0.74 * f * gain / ((gain + f) * c1)
    )


def elevation(rows, seed):
    heights = np.asarray(cbook.get_sample_data("jacksboro_fault_dem.npz")["elevation"], float)
    random = np.random.default_rng(seed)
    i, j = random.integers(0, heights.shape[0], rows), random.integers(0, heights.shape[1], rows)
    return np.stack([i, j], 1).astype(float), heights[i, j]


def data_sets():
    """Ten sets, 1-D to 8-D, 133 to 600 rows."""
    times, accelerations = data.motorcycle()
    weekly = data._weekly()
    known = np.isfinite(weekly[1])
    diabetes = load_diabetes()
    return {
        "motorcycle": (times[:, None], accelerations),
        "co2": (weekly[0][known][:600, None], weekly[1][known][:600]),
        "elevation": elevation(600, 0),
        "friedman1": make_friedman1(400, n_features=5, noise=1.0, random_state=0),
        "friedman2": make_friedman2(300, noise=30.0, random_state=0),
        "friedman3": make_friedman3(300, noise=0.1, random_state=0),
        "circuit": noisy(circuit, 6, 150, 1),
        "piston": noisy(piston, 7, 200, 2),
        "borehole": noisy(borehole, 8, 250, 3, 0.05),
        "diabetes": (diabetes.data[:, 2:], diabetes.target),
    }


def score_peer(x, y, held, targets):
    """Matérn with a length scale a column and noise, ν = 3/2 or 5/2 by evidence, one restart."""
    centre, scale = x.mean(0), x.std(0)
    x, held = (x - centre) / scale, (held - centre) / scale
    fitted = []
    for nu in (1.5, 2.5):
        kernel = ConstantKernel() * Matern(np.ones(x.shape[1]), nu=nu) + WhiteKernel(0.1)
        model = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0
        )
        fitted.append(model.fit(x, y))
    best = max(fitted, key=lambda m: m.log_marginal_likelihood_value_)
    mean, sd = best.predict(held, return_std=True)
    return np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * (targets - mean) ** 2 / sd**2)


def score_ours(x, y, held, targets):
    return -np.mean(MercerRegressor().fit(x, y).log_density(held, targets))


def compare_sets(names):
    found = {}
    for name, (x, y) in data_sets().items():
        if names and name not in names:
            continue
        rows = {"ours": [], "peer": [], "ours_seconds": 0.0, "peer_seconds": 0.0}
        unit = np.log(y.std())
        for kept, held in KFold(5, shuffle=True, random_state=0).split(x):
            for label, score in (("ours", score_ours), ("peer", score_peer)):
                begin = time.monotonic()
                rows[label].append(score(x[kept], y[kept], x[held], y[held]) - unit)
                rows[f"{label}_seconds"] += time.monotonic() - begin
        found[name] = {k: float(np.mean(v)) for k, v in rows.items()}
        print(name, x.shape, {k: round(v, 3) for k, v in found[name].items()}, flush=True)
    better = sum(v["ours"] < v["peer"] for v in found.values())
    worst = max(v["ours"] - v["peer"] for v in found.values())
    print(f"better on {better} of {len(found)}, never worse by more than {worst:.3f}")
    return found


def cover_gaps():
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 10, 200))
    smooth = np.sin(x) + 0.3 * np.cos(3 * x)
    gap = (x > 4) & (x < 6)
    y = smooth + 0.05 * random.standard_normal(200)
    found = {"smooth": _coverage(x[~gap, None], y[~gap], x[gap, None], y[gap])}
    heights = np.asarray(cbook.get_sample_data("jacksboro_fault_dem.npz")["elevation"], float)
    i, j = np.meshgrid(*(np.arange(n) for n in heights.shape), indexing="ij")
    square = (abs(i - 171.5) <= 30) & (abs(j - 200.5) <= 30)
    grid = np.stack([i, j], -1).astype(float)
    rows = random.permutation(np.flatnonzero(~square))[:4000]
    found["elevation"] = _coverage(
        grid.reshape(-1, 2)[rows], heights.ravel()[rows], grid[square], heights[square]
    )
    return found


def _coverage(x, y, held, targets):
    begin = time.monotonic()
    model = MercerRegressor().fit(x, y)
    seconds = time.monotonic() - begin
    _, (low, high) = model.predict(held, quantiles=(0.025, 0.975))
    inside = np.mean((targets >= low) & (targets <= high))
    found = {"rows": len(y), "held": len(targets), "coverage": float(inside), "seconds": seconds,
             "nlpd": float(-np.mean(model.log_density(held, targets)))}  # fmt: skip
    print(found, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("sets", "gaps"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    results = compare_sets(chosen.only) if chosen.what == "sets" else cover_gaps()
    if chosen.out:
        with open(chosen.out, "w") as file:
            json.dump(results, file, indent=2)
