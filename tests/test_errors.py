"""Bad input: one clear sentence each, at construction where possible."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.domains import require_inside

UNIT = mercer.Interval(0, 1)
BROWNIAN = mercer.BrownianMotion(20)


def network(width=6, **options):
    return mercer.FourierMLP(1, width, num_frequencies=3, key=jax.random.key(0), **options)


def prior():
    return mercer.Prior(mercer.Quadrature(BROWNIAN), network())


def infinite(x):
    return jnp.stack([x[0], jnp.inf * x[0]])


class Quadratic(eqx.Module):
    readout: jax.Array

    def __call__(self, x):
        return jnp.sum(self.readout**2) * x[0]


class Cut(mercer.Spectrum):
    domain: mercer.Domain
    log_eigenvalues: jax.Array

    def eigenfunctions(self, x):
        t = self.domain.point(x)[0]
        n = jnp.arange(1, self.log_eigenvalues.shape[0] + 1)
        return jnp.sqrt(2.0) * jnp.sin(jnp.pi * n * t)


CASES = {
    "reversed interval": (lambda: mercer.Interval(1, 0), "below upper"),
    "infinite box": (lambda: mercer.Box([0.0], [np.inf]), "finite"),
    "corners that do not match": (lambda: mercer.Box([0.0], [1.0, 2.0]), "one entry per dimension"),
    "flat line": (lambda: mercer.RealLine(0.0), "positive"),
    "empty cloud": (lambda: mercer.Empirical(np.zeros((0, 2))), "shape"),
    "cloud with a NaN": (lambda: mercer.Empirical([[1.0], [np.nan]]), "NaN or infinite"),
    "no modes": (lambda: mercer.BrownianMotion(0), "at least 1"),
    "half a mode": (
        lambda: mercer.spectra.laplace_basis.laplace_basis(UNIT, 0, "neumann"),
        "num_modes",
    ),
    "too many modes asked": (
        lambda: BROWNIAN[:21] and mercer.FiniteRank(lambda x: x, [1.0], UNIT)[:2],
        "more than",
    ),
    "strange slice": (lambda: BROWNIAN[2:5], r"S\[:K\]"),
    "unknown side": (lambda: mercer.Laplacian(UNIT, 5, "robin"), "dirichlet"),
    "sides for another dimension": (
        lambda: mercer.Laplacian(UNIT, 5, ["neumann"] * 3),
        "one entry per axis",
    ),
    "constant mode": (lambda: mercer.Laplacian(UNIT, 5, "neumann"), "mode 1 is constant"),
    "not trace class": (
        lambda: mercer.Laplacian(mercer.Box([0.0] * 2, [1.0] * 2), 5) ** 0.9,
        "not trace class in 2 dimensions",
    ),
    "not trace class in an energy": (
        lambda: mercer.Quadrature(mercer.Laplacian(mercer.Box([0.0] * 2, [1.0] * 2), 5)),
        "above d/2 = 1",
    ),
    "negative power": (lambda: BROWNIAN**-1.0, "trace class"),
    "negative factor": (lambda: -2.0 * BROWNIAN, "positive"),
    "box on a line": (lambda: mercer.Laplacian(mercer.RealLine(1.0), 5), "Nystrom"),
    "underflow": (
        lambda: mercer.Quadrature(mercer.SquaredExponential(1.0, 1.0, UNIT, 30)),
        "mode 13",
    ),
    "underflow as printed for CO2": (
        lambda: mercer.FiniteRank(lambda x: jnp.ones(3) * x, np.exp([0.0, -609.0, -15231.0]), UNIT),
        "weight 2",
    ),
    "underflow in a period": (lambda: mercer.Periodic(0.18, 1.0, 5, UNIT), "harmonic 1"),
    "infinite eigenvalue": (
        lambda: mercer.Lattice(Cut(UNIT, jnp.array([np.inf, 0.0])), 8),
        "mode 1 .* not summable",
    ),
    "modes out of order": (
        lambda: mercer.Lattice(Cut(UNIT, jnp.array([0.0, -2.0, -1.0])), 8),
        "mode 3 is larger than mode 2",
    ),
    "functions and weights differ": (
        lambda: mercer.FiniteRank(lambda x: jnp.ones(3), [1.0, 2.0], UNIT),
        "one value per weight",
    ),
    "sum over two domains": (
        lambda: BROWNIAN + mercer.BrownianMotion(5, mercer.Interval(0, 2)),
        "one domain",
    ),
    "too many products": (
        lambda: mercer.TensorProduct(*[mercer.BrownianMotion(100)] * 3),
        "how many to keep",
    ),
    "more modes than points": (
        lambda: mercer.Nystrom(lambda s, t: 1.0, mercer.Empirical(np.zeros((3, 1))), 5),
        "at most as many modes",
    ),
    "more modes than the kernel has": (
        lambda: mercer.Nystrom(lambda s, t: jnp.exp(-jnp.sum((s - t) ** 2)), UNIT, 40),
        "lost in rounding",
    ),
    "too few quadrature points": (lambda: mercer.Quadrature(BROWNIAN, 12), r"use at least \(56,\)"),
    "quadrature of a large box": (
        lambda: mercer.Quadrature(mercer.Laplacian(mercer.Box([0.0] * 6, [1.0] * 6), 100) ** 4),
        "use Lattice",
    ),
    "no points": (lambda: mercer.Lattice(BROWNIAN, 0), "at least 1"),
    "lattice that is no power of two": (
        lambda: mercer.Lattice(mercer.Laplacian(mercer.Box([0.0] * 2, [1.0] * 2), 5) ** 2, 1000),
        "nearest below is 512",
    ),
    "unknown mode law": (lambda: mercer.MonteCarlo(BROWNIAN, 5, 5, modes="flat"), "'uniform'"),
    "probabilities that do not sum": (
        lambda: mercer.MonteCarlo(BROWNIAN, 5, 5, modes=np.ones(20)),
        "sum to one",
    ),
    "no batch": (lambda: mercer.Lattice(BROWNIAN, 8)(lambda x: x[0]), "density.batch"),
    "no width": (lambda: network(width=0), "width must be at least 1"),
    "unknown frequency law": (lambda: network(law="levy"), "cauchy"),
    "network of another domain": (
        lambda: mercer.Prior(
            mercer.Quadrature(mercer.BrownianMotion(5, mercer.Interval(0, 2))), network()
        ),
        "domain=spectrum.domain",
    ),
    "factor where there is variance": (
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), network(boundary="dirichlet")),
        "upper side of axis 0",
    ),
    "network that is no scalar": (
        lambda: mercer.Prior(
            mercer.Quadrature(BROWNIAN), eqx.nn.Linear(1, 1, key=jax.random.key(0))
        ),
        "to a scalar",
    ),
    "nothing random": (
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), network(), trainable=lambda leaf: False),
        "no leaf",
    ),
    "energies that do not match": (
        lambda: mercer.Prior({"a": mercer.Quadrature(BROWNIAN)}, {"b": network()}),
        "energy must be one for all",
    ),
    "exact draw of a nonlinear readout": (
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), Quadratic(jnp.ones(3))).draw(
            jax.random.key(0)
        ),
        "not linear in its readout",
    ),
    "exact draw of a random energy": (
        lambda: mercer.Prior(mercer.Lattice(BROWNIAN, 32), network()).draw(jax.random.key(0)),
        "needs the Quadrature energy",
    ),
    "X without columns": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones(3), np.ones(3))),
        r"X\[:, None\]",
    ),
    "no data": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones((0, 1)), np.ones(0))),
        "empty",
    ),
    "rows that do not match": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones((3, 1)), np.ones(4))),
        "3 rows",
    ),
    "NaN in y": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones((2, 1)), [1.0, np.nan])),
        r"first at index \(1,\)",
    ),
    "points outside": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), ([[0.5], [1.25]], [0.0, 0.0])),
        "row 1, by 0.25",
    ),
    "points outside at prediction": (
        lambda: require_inside(UNIT, jnp.array([[0.5], [-3.0]]), "points"),
        "by 3;",
    ),
    "batch larger than data": (
        lambda: mercer.Posterior(
            prior(), mercer.Gaussian(0.1), (np.ones((2, 1)), np.ones(2)), batch_size=3
        ),
        "more than the 2 rows",
    ),
    "noise for other rows": (
        lambda: mercer.Posterior(
            prior(), mercer.Gaussian([0.1, 0.2, 0.3]), (np.ones((2, 1)), np.ones(2))
        ),
        "one a row",
    ),
    "negative noise": (lambda: mercer.Gaussian(-1.0), "scale must be positive"),
    "targets that are no coin flips": (
        lambda: mercer.Posterior(prior(), mercer.Bernoulli(), (np.ones((2, 1)), np.array([0, 2]))),
        "0 or 1",
    ),
    "targets that are no counts": (
        lambda: mercer.Posterior(
            prior(), mercer.Poisson(), (np.ones((2, 1)), np.array([0.5, 2.0]))
        ),
        "whole numbers",
    ),
    "share over one": (lambda: BROWNIAN.num_modes_for(1.5), r"\(0, 1\]"),
    "share out of reach": (lambda: BROWNIAN.num_modes_for(0.9999), "more modes"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_gets_one_clear_sentence(name):
    make, words = CASES[name]
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value).strip()


@pytest.mark.float32
def test_closed_forms_ask_for_64_bits():
    prior = mercer.Prior(mercer.Quadrature(BROWNIAN), network())
    if jax.config.read("jax_enable_x64"):
        assert prior.normalised
        return
    for attempt in (
        lambda: prior.draw(jax.random.key(0)),
        lambda: mercer.fidelity(prior),
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), network(), normalised=True),
        lambda: mercer.GaussianProcess(BROWNIAN).condition(np.ones((2, 1)) / 2, np.ones(2), 0.1),
    ):
        with pytest.raises(ValueError, match="jax_enable_x64"):
            attempt()


def test_a_negative_power_names_the_reason():
    with pytest.raises(ValueError, match="power must be positive"):
        mercer.FiniteRank(lambda x: x, [1.0], UNIT) ** -1
