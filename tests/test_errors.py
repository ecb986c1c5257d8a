"""Bad input: one clear sentence each, at construction where possible."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.checks import require_key
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


class Cut(mercer.spectra.Spectrum):
    domain: mercer.domains.Domain
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
        "mode 5 .* keep S",
    ),
    "underflow as printed for CO2": (
        lambda: mercer.FiniteRank(lambda x: jnp.ones(3) * x, np.exp([0.0, -609.0, -15231.0]), UNIT),
        "weight 2",
    ),
    "underflow in a period": (lambda: mercer.Periodic(0.18, 1.0, UNIT, 5), "harmonic 1"),
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
        "needs a deterministic energy, Quadrature or Nodes",
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
    "words for y": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones((2, 1)), ["a", "b"])),
        "y must hold real numbers",
    ),
    "complex y": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), (np.ones((2, 1)), [1j, 2j])),
        "y must hold real numbers",
    ),
    "rows of different length": (
        lambda: mercer.Posterior(prior(), mercer.Gaussian(0.1), ([[1.0], [0.5, 0.5]], np.ones(2))),
        "X must be a rectangular array",
    ),
    "a number for a key": (lambda: require_key(0), "key must be a random key"),
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
    "zero quadrature points": (lambda: mercer.Quadrature(BROWNIAN, 0), "at least 1"),
    "power that is not summable": (
        lambda: mercer.Quadrature(mercer.Matern(0.5, 0.1, 1.0, UNIT, 100) ** 0.3),
        "not summable",
    ),
    "kernel that is not trace class": (
        lambda: mercer.Laplacian(mercer.Box([0.0] * 2, [1.0] * 2), 5).kernel(
            [0.5, 0.5], [0.5, 0.5]
        ),
        "not trace class",
    ),
    "factor on a sum with variance there": (
        lambda: mercer.Prior(
            mercer.Quadrature(BROWNIAN + mercer.FiniteRank(lambda x: jnp.ones(1), [1.0], UNIT)),
            network(boundary=("dirichlet", "neumann")),
        ),
        "lower side of axis 0",
    ),
    "proposal that does not cover": (
        lambda: mercer.MonteCarlo(BROWNIAN, 5, 5, proposal=mercer.Interval(0, 0.5)),
        "must cover",
    ),
    "functions with a NaN": (lambda: mercer.FiniteRank(lambda x: jnp.sqrt(-x), [1.0], UNIT), "NaN"),
    "kernel that is not symmetric": (
        lambda: mercer.Nystrom(lambda s, t: s[0], UNIT, 2),
        "symmetric",
    ),
    "mean that is no scalar": (
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), network(), mean=lambda x: x),
        "must be a scalar",
    ),
    "function that is no scalar": (
        lambda: mercer.Quadrature(BROWNIAN)(lambda x: x),
        "must be a scalar",
    ),
    "y with two columns": (
        lambda: mercer.Posterior(prior(), mercer.Poisson(), (np.ones((2, 1)), np.ones((2, 1)))),
        r"shape \(n,\)",
    ),
    "one network for two": (
        lambda: mercer.Posterior(prior(), mercer.Heteroscedastic(), (np.ones((2, 1)), np.ones(2))),
        'Heteroscedastic needs networks {"mean": …, "scale": …}',
    ),
    "one network for two, without a tail": (
        lambda: mercer.Posterior(
            prior(), mercer.Heteroscedastic(), (np.ones((2, 1)), np.ones(2)), tail="none"
        ),
        'Heteroscedastic needs networks {"mean": …, "scale": …}',
    ),
    "a network for the noise": (
        lambda: mercer.Posterior(
            mercer.Prior(mercer.Quadrature(BROWNIAN), {"mean": network(), "scale": network()}),
            mercer.Gaussian(0.1),
            (np.ones((2, 1)), np.ones(2)),
        ),
        "are those of Heteroscedastic",
    ),
    "process outside its domain": (
        lambda: mercer.GaussianProcess(BROWNIAN).draw(jax.random.key(0), np.array([[1.5]])),
        "by 0.5",
    ),
    "fidelity outside the domain": (lambda: mercer.fidelity(prior(), [[2.0]]), "by 1"),
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
    if jax.config.read("jax_enable_x64"):
        assert mercer.Prior(mercer.Quadrature(BROWNIAN), network()).normalised
        return
    with pytest.warns(UserWarning, match="un-normalised"):
        prior = mercer.Prior(mercer.Quadrature(BROWNIAN), network())
    with pytest.raises(ValueError, match="too small to divide by in float32"):
        mercer.Quadrature(mercer.Laplacian(UNIT, 1000) ** 2)
    for attempt in (
        lambda: prior.draw(jax.random.key(0)),
        lambda: mercer.fidelity(prior),
        lambda: mercer.Prior(mercer.Quadrature(BROWNIAN), network(), normalised=True),
        lambda: mercer.GaussianProcess(BROWNIAN).condition(np.ones((2, 1)) / 2, np.ones(2), 0.1),
    ):
        with pytest.raises(ValueError, match="jax_enable_x64"):
            attempt()


def test_slow_decay_is_told():
    with pytest.warns(UserWarning, match=r"decay like n\^-1"):
        mercer.Lattice(Cut(UNIT, -jnp.log(jnp.arange(1.0, 41.0))), 8)


def test_nonlinear_readouts_are_found_where_features_vanish_at_places():
    class Hinges(eqx.Module):
        readout: jax.Array

        def __call__(self, x):
            return jnp.dot(self.readout**2, jax.nn.relu(x[0] - jnp.array([0.5, 0.7])))

    assert not mercer.Prior(mercer.Quadrature(BROWNIAN), Hinges(jnp.ones(2))).normalised


def test_a_negative_power_names_the_reason():
    with pytest.raises(ValueError, match="power must be positive"):
        mercer.FiniteRank(lambda x: x, [1.0], UNIT) ** -1


def test_a_network_that_cannot_follow_its_process_is_told():
    """In other units readout scales that were tuned by hand say nothing of the process."""
    domain, inputs = mercer.Interval(1000, 5000), np.linspace(1100, 4900, 9)[:, None]
    network = mercer.FourierMLP(1, 40, domain=domain, key=jax.random.key(0))

    def make_posterior(hyper):
        spectrum = mercer.Matern(1.5, 400.0, hyper["variance"], domain, 30)
        prior = mercer.Prior(mercer.Quadrature(spectrum), network)
        return mercer.Posterior(prior, mercer.Gaussian(0.1), (inputs, inputs[:, 0]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_posterior({"variance": 0.5})
    with pytest.warns(UserWarning, match="cannot follow its process: at x = .* times the variance"):
        make_posterior({"variance": 1e6})
    prior = mercer.hyper.LogNormal(1.0, 4.0)
    with pytest.warns(UserWarning, match="the prior of variance reaches .*cannot follow"):
        mercer.hyper.Joint(make_posterior, {"variance": prior})
