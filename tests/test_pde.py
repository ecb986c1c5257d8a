"""Forward maps: against each other, against exact solutions, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mercer import Box, Interval, data
from mercer.pde import Flow, conduct

INTERVAL = Interval(-1.0, 2.0)
BOX = Box([1.0, -1.0], [3.0, 0.0])


def hump(temperature):
    return 0.2 + jnp.exp(-0.5 * jnp.square((temperature - 900.0) / 250.0))


def observed_orders(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def source_of(kappa, exact):
    """−div(κ(x, T) ∇T) of an exact solution."""

    def flux(x):
        return kappa(x, exact(x)) * jax.grad(exact)(x)

    return lambda x: -jnp.trace(jax.jacfwd(flux)(x))


def line(x):
    """Known at the lower side; its slope at the upper one is known too."""
    return jnp.sin(1.3 * x[0]) + x[0]


def wave(x):
    """1 at the lower side of the first axis; level at its upper side and along the second."""
    first, second = (x[0] - 1.0) / 2.0, x[1] + 1.0
    return 1.0 + jnp.sin(0.5 * jnp.pi * first) * (1.0 + 0.3 * jnp.cos(jnp.pi * second))


def flow_of(dimension, count):
    if dimension == 1:
        ends = jnp.array([-1.0]), jnp.array([2.0])
        slope = kappa_of(ends[1], line(ends[1])) * jax.grad(line)(ends[1])[0]
        values = jnp.stack([line(ends[0]), slope])
        return Flow(INTERVAL, count, ("dirichlet", "neumann"), values), line
    sides = (("dirichlet", "neumann"), ("neumann", "neumann"))
    return Flow(BOX, (count, count), sides, ((1.0, 0.0), (0.0, 0.0))), wave


def kappa_of(x, field):
    return jnp.exp(0.4 * jnp.sin(2.0 * x[0])) * (1.0 + 0.2 * jnp.square(field))


def steady(flow, exact, nonlinear):
    """The flow whose exact solution is known, with and without κ's dependence on it."""
    if nonlinear:
        return jax.jit(lambda: flow.solve_nonlinear(kappa_of, source_of(kappa_of, exact)))()
    plain = lambda x, field: kappa_of(x, exact(x))  # noqa: E731
    return jax.jit(lambda: flow.solve(lambda x: plain(x, 0.0), source_of(plain, exact)))()


@pytest.mark.parametrize("nonlinear", [False, True], ids=["linear", "nonlinear"])
@pytest.mark.parametrize(("dimension", "counts"), [(1, (24, 48)), (2, (10, 20))])
def test_finite_volumes_converge_at_second_order(dimension, counts, nonlinear):
    errors, between = [], []
    for count in counts:
        flow, exact = flow_of(dimension, count)
        field = steady(flow, exact, nonlinear)
        truth = jax.vmap(exact)(flow.centres).reshape(field.shape)
        errors.append(float(jnp.max(jnp.abs(field - truth))))
        points = flow.domain.lattice(jax.random.key(0), 64)
        off = flow.at(field, points) - jax.vmap(exact)(points)
        between.append(float(jnp.sqrt(jnp.mean(off**2))))
    assert np.all(observed_orders(errors) > 1.8), errors
    assert np.all(observed_orders(between) > 1.6), between


def test_the_closed_form_is_exact_where_the_integral_is_known():
    stations = jnp.linspace(0, 1, 51)
    found = conduct(lambda t: jnp.exp(t / 400.0), 300.0, 1900.0, stations)
    low, high = np.exp(300 / 400), np.exp(1900 / 400)
    exact = 400 * np.log(low + np.asarray(stations) * (high - low))
    np.testing.assert_allclose(found, exact, rtol=1e-7)
    assert float(found[0]) == 300.0
    scaled = conduct(lambda t: 7.0 * jnp.exp(t / 400.0), 300.0, 1900.0, stations)
    np.testing.assert_allclose(scaled, found, rtol=1e-12)


def test_the_closed_form_converges_at_fourth_order():
    stations = jnp.linspace(0, 1, 51)
    exact = conduct(hump, 300.0, 1900.0, stations, num_cells=1600)
    errors = [
        float(jnp.max(jnp.abs(conduct(hump, 300.0, 1900.0, stations, num_cells=n) - exact)))
        for n in (50, 100)
    ]
    assert np.all(observed_orders(errors) > 3.5), errors
    assert errors[-1] < 1e-6 * 1600


def test_closed_form_and_finite_volumes_agree():
    stations = jnp.linspace(0, 1, 11)
    closed = conduct(hump, 300.0, 1900.0, stations)
    differences = []
    for count in (60, 120):
        flow = Flow(Interval(0, 1), count, values=(300.0, 1900.0))
        field = jax.jit(lambda f=flow: f.solve_nonlinear(lambda x, t: hump(t)))()
        differences.append(float(jnp.max(jnp.abs(flow.at(field, stations[:, None]) - closed))))
    assert differences[-1] < 2.0
    assert np.all(observed_orders(differences) > 1.5), differences


def test_the_shipped_profile_follows_from_the_shipped_conductivity():
    temperatures, truth = data.insulation_truth()
    stations, observed = data.insulation()
    made = conduct(lambda t: jnp.interp(t, temperatures, truth), 300.0, 1900.0, stations, 320)
    residuals = (np.asarray(made) - observed) / 2.5
    assert abs(np.std(residuals) - 1.0) < 0.3
    assert np.max(np.abs(residuals)) < 4.0


def conduction(params):
    stations = jnp.array([0.0, 0.2, 0.55, 0.9, 1.0])
    kappa = lambda t: jnp.exp(params[0] * t + params[1] * jnp.sin(3 * t))  # noqa: E731
    return jnp.sum(jnp.array([1.0, -2.0, 3.0, 1.5, 1.0]) * conduct(kappa, 0.0, 2.0, stations))


def darcy(params):
    flow = Flow(BOX, (9, 7), (("dirichlet", "neumann"), "dirichlet"), ((1.0, 0.3), (0.0, 2.0)))
    field = flow.solve(lambda x: jnp.exp(params[0] * x[0] + params[1] * x[1] ** 2), params[2])
    return jnp.sum(flow.at(field, jnp.array([[1.2, -0.3], [2.7, -0.9]])) ** 2)


def hot_bar(params):
    flow = Flow(INTERVAL, 20, ("neumann", "dirichlet"), jnp.stack([params[0], params[1]]))
    field = flow.solve_nonlinear(lambda x, t: 1.0 + jnp.exp(params[2] * t) + x[0] ** 2, 2.0)
    return jnp.sum(field**2)


@pytest.mark.parametrize(
    ("function", "params"),
    [(conduction, [0.7, -0.4]), (darcy, [0.5, -1.0, 2.0]), (hot_bar, [0.4, 1.0, 0.3])],
)
def test_gradients_agree_with_finite_differences(function, params):
    params, step = jnp.array(params), 1e-4
    found = jax.jit(jax.grad(function))(params)
    value = jax.jit(function)
    for i, unit in enumerate(jnp.eye(len(params))):
        difference = (value(params + step * unit) - value(params - step * unit)) / (2 * step)
        np.testing.assert_allclose(found[i], difference, rtol=1e-5, atol=1e-7)


def test_second_derivatives_of_the_closed_form():
    params = jnp.array([0.7, -0.4])
    found = jax.jit(jax.hessian(conduction))(params)
    slope = jax.jit(jax.grad(conduction))
    for i, unit in enumerate(jnp.eye(2)):
        difference = (slope(params + 1e-5 * unit) - slope(params - 1e-5 * unit)) / 2e-5
        np.testing.assert_allclose(found[i], difference, rtol=1e-4, atol=1e-6)


def test_flows_go_over_batches():
    flow = Flow(BOX, (5, 6))
    slopes = jnp.array([-1.0, 0.0, 2.0])
    together = jax.jit(jax.vmap(lambda a: flow.solve(lambda x: jnp.exp(a * x[0]), 1.0)))(slopes)
    for slope, field in zip(slopes, together, strict=True):
        alone = flow.solve(lambda x, a=slope: jnp.exp(a * x[0]), 1.0)
        np.testing.assert_allclose(field, alone, rtol=1e-7)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: conduct(lambda t: t - 1.0, 0.0, 2.0, [0.5]), "kappa must be positive"),
        (lambda: conduct(hump, 300.0, 1900.0, [0.5, 1.2]), "divide by the thickness"),
        (lambda: conduct(hump, 300.0, 1900.0, [[0.5]]), "of shape"),
        (lambda: conduct(hump, 300.0, 1900.0, [jnp.nan]), "stations must be numbers"),
        (lambda: conduct(hump, 1900.0, 300.0, [0.5]), "lower must be below upper"),
        (lambda: conduct(hump, 300.0, 1900.0, [0.5], 1), "num_cells must be at least 2"),
        (lambda: Flow(BOX, (1, 4)), "cells must be at least 2"),
        (lambda: Flow(BOX, (4,)), "one count per axis"),
        (lambda: Flow(BOX, 4, "robin"), "'dirichlet' or 'neumann'"),
        (lambda: Flow(BOX, 4, ("periodic", "dirichlet")), "got 'periodic'"),
        (lambda: Flow(BOX, 4, "neumann"), "known up to a constant"),
        (lambda: Flow(BOX, 4, values=(1.0, 2.0)), r"shape \(2, 2\)"),
        (lambda: Flow(BOX, 4).solve(lambda x: x[1]), "kappa must be positive"),
        (lambda: Flow(BOX, 4).at(jnp.zeros((4, 4)), [[0.0, 0.0]]), "outside"),
    ],
)
def test_mistakes_are_told(attempt, words):
    with pytest.raises(ValueError, match=words):
        attempt()


def test_an_iteration_that_fails_is_told():
    flow = Flow(INTERVAL, 8, values=(0.0, 1.0))
    with pytest.raises(RuntimeError, match="did not converge"):
        flow.solve_nonlinear(lambda x, t: jnp.exp(-80.0 * t), 1e3)


def test_compiled_maps_answer_nan_where_kappa_is_not_positive():
    stations = jnp.array([0.5])
    made = jax.jit(lambda a: conduct(lambda t: t - a, 0.0, 2.0, stations))
    assert bool(jnp.isnan(made(1.0)[0]))
    assert bool(jnp.isfinite(made(-1.0)[0]))
