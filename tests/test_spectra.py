"""Every spectrum keeps one contract; what is special to a family follows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from families import BOX, LINE, brute_force_mixed, brute_force_square, make_families
from mercer.spectra.squared_exponential import hermite_functions

FAMILIES = make_families() if jax.config.read("jax_enable_x64") else {}


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


def some_points(domain, count=7):
    return domain.sample(jax.random.key(3), count)


def test_eigenfunctions_are_orthonormal(family):
    spectrum, _ = family
    points = spectrum.quadrature_points()
    counts = points + 7 if isinstance(points, int) else tuple(p + 7 for p in points)
    nodes, weights = spectrum.domain.quadrature(counts)
    values = jax.vmap(spectrum.eigenfunctions)(nodes)
    gram = values.T @ (weights[:, None] * values)
    np.testing.assert_allclose(gram, np.eye(spectrum.num_modes), atol=1e-8)


def test_kernel_is_the_judges(family):
    spectrum, judge = family
    points = some_points(spectrum.domain)
    ours = jax.vmap(lambda s: jax.vmap(lambda t: spectrum.kernel(s, t))(points))(points)
    theirs = np.array([[judge(np.asarray(s), np.asarray(t)) for t in points] for s in points])
    # Two judges are cut themselves: four harmonics are kept of the wrapped Gaussian's sum, and
    # the boxes' double sums end at 2,000 modes to an axis.
    tolerance = 1e-9
    if isinstance(spectrum, mercer.Periodic) or judge in (brute_force_square, brute_force_mixed):
        tolerance = 3e-7
    np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())


def test_modes_rebuild_the_kernel_up_to_the_tail(family):
    spectrum, _ = family
    points = some_points(spectrum.domain, 20)
    full = jax.vmap(lambda x: spectrum.kernel(x, x))(points)
    kept = jax.vmap(lambda x: spectrum.kept_kernel(x, x))(points)
    tail = jax.vmap(spectrum.tail_variance)(points)
    assert np.all(np.asarray(kept) <= np.asarray(full) * (1 + 1e-9) + 1e-12)
    np.testing.assert_allclose(kept + tail, full, rtol=1e-9, atol=1e-12)


def test_trace_is_the_integral_of_the_variance(family):
    spectrum, _ = family
    domain = spectrum.domain
    counts = 60 if isinstance(domain, mercer.Box) and domain.dimension == 2 else 400
    nodes, weights = domain.quadrature(counts)
    variance = jax.lax.map(lambda x: spectrum.kernel(x, x), nodes)
    np.testing.assert_allclose(jnp.sum(weights * variance), spectrum.trace, rtol=1e-5)
    eigenvalue_sum = float(jnp.sum(jnp.exp(spectrum.log_eigenvalues)))
    assert eigenvalue_sum <= float(spectrum.trace) * (1 + 1e-9)


def test_modes_are_ordered(family):
    spectrum, _ = family
    assert np.all(np.diff(np.asarray(spectrum.log_eigenvalues)) <= 1e-9)
    spectrum.check()


def test_jit_vmap_and_pytree_round_trip(family):
    spectrum, _ = family
    points = some_points(spectrum.domain)
    plain = jnp.stack([spectrum.eigenfunctions(x) for x in points])
    compiled = eqx.filter_jit(lambda s, x: jax.vmap(s.eigenfunctions)(x))(spectrum, points)
    np.testing.assert_allclose(compiled, plain, rtol=1e-9, atol=1e-9)
    leaves, structure = jax.tree.flatten(spectrum)
    again = jax.tree.unflatten(structure, leaves)
    np.testing.assert_array_equal(
        again.eigenfunctions(points[0]), spectrum.eigenfunctions(points[0])
    )


def test_projection_is_the_weighted_sum(family):
    spectrum, _ = family
    points = some_points(spectrum.domain, 30)
    values = jnp.sin(jnp.arange(30.0))
    table = jax.vmap(spectrum.eigenfunctions)(points)
    np.testing.assert_allclose(
        spectrum.project(points, values), values @ table, rtol=1e-9, atol=1e-9
    )


def test_with_variance_sets_the_mean_variance(family):
    scaled = family[0].with_variance(3.0)
    np.testing.assert_allclose(scaled.trace / scaled.domain.measure, 3.0, rtol=1e-9)


def test_half_of_the_modes(family):
    spectrum, _ = family
    half = max(1, spectrum.num_modes // 2)
    cut = spectrum[:half]
    points = some_points(spectrum.domain, 3)
    assert cut.num_modes == half
    np.testing.assert_allclose(cut.log_eigenvalues, spectrum.log_eigenvalues[:half])
    np.testing.assert_allclose(
        jax.vmap(cut.eigenfunctions)(points),
        jax.vmap(spectrum.eigenfunctions)(points)[:, :half],
        atol=1e-12,
    )


def test_five_hundred_hermite_modes():
    spectrum = mercer.SquaredExponential(0.4, 1.0, mercer.RealLine(2.0), 500)
    nodes, weights = spectrum.domain.quadrature(spectrum.quadrature_points())
    values = jax.vmap(spectrum.eigenfunctions)(nodes)
    gram = values.T @ (weights[:, None] * values)
    np.testing.assert_allclose(gram, np.eye(500), atol=1e-8)


def test_hermite_functions_past_a_thousand_and_far_out():
    y = jnp.linspace(-60, 60, 24001)
    values = jax.vmap(lambda x: hermite_functions(x, 1500))(y)
    gram = (values.T @ values) * (y[1] - y[0])
    np.testing.assert_allclose(gram, np.eye(1500), atol=1e-8)


def test_paper_keeps_about_twenty_modes_for_99_percent():
    assert mercer.BrownianMotion(200).num_modes_for(0.99) == 21


def test_any_power_of_the_laplacian_has_a_closed_kernel():
    from scipy.special import zeta

    for power in (0.55, 0.75, 1.3, 3.0):
        spectrum = mercer.Laplacian(mercer.Interval(0, 1), 5) ** power
        exact = 2 * np.pi ** (-2 * power) * (1 - 2 ** (-2 * power)) * zeta(2 * power)
        np.testing.assert_allclose(spectrum.kernel(0.5, 0.5), exact, rtol=1e-11)


def test_many_dimensions_do_not_build_a_grid():
    box = mercer.Box([0.0] * 10, [1.0] * 10)
    spectrum = mercer.Laplacian(box, 200, "neumann", shift=1.0) ** 6
    eigenvalues = np.asarray(spectrum.basis.eigenvalues) / np.pi**2
    # One constant, then the 10 axes, the 45 pairs, the 120 triples with the 10 second harmonics.
    assert np.round(eigenvalues).astype(int).tolist()[:57] == [0] + [1] * 10 + [2] * 45 + [3]


def test_modes_of_a_flat_box_are_the_smallest_of_the_full_grid():
    spectrum = mercer.Laplacian(BOX, 150) ** 2
    n = np.arange(1, 151)
    grid = (np.pi * n[:, None] / 2.0) ** 2 + (np.pi * n[None] / 1.5) ** 2
    np.testing.assert_allclose(spectrum.basis.eigenvalues, np.sort(grid.ravel())[:150], rtol=1e-12)


def test_powers_multiply_and_scale():
    base = mercer.Laplacian(LINE, 20)
    np.testing.assert_allclose(((base**2) ** 1.5).log_eigenvalues, (base**3).log_eigenvalues)
    np.testing.assert_allclose(
        ((4.0 * base) ** 2).log_eigenvalues, (16.0 * base**2).log_eigenvalues
    )
    np.testing.assert_allclose(
        (mercer.BrownianMotion(20, LINE) ** 2).kernel(0.1, 0.2),
        (mercer.Laplacian(LINE, 5, ("dirichlet", "neumann")) ** 2).kernel(0.1, 0.2),
    )
    np.testing.assert_allclose(np.float64(2.0) * base.log_eigenvalues, 2 * base.log_eigenvalues)
    assert isinstance(np.float64(2.0) * base, mercer.spectra.Spectrum)


def test_kernels_of_very_smooth_and_very_rough_powers():
    """The ends of the time integral: late for large powers, early for small ones."""
    from scipy.special import zeta

    unit = mercer.Interval(0, 1)
    for power in (0.505, 0.51, 12.0, 40.0):
        trace = (mercer.Laplacian(unit, 5) ** power).trace
        exact = np.pi ** (-2 * power) * zeta(2 * power)
        np.testing.assert_allclose(trace, exact, rtol=1e-4 if power < 0.6 else 1e-10)
    middle = mercer.Matern(20.0, 0.1, 2.0, mercer.Interval(0, 10), 10)
    np.testing.assert_allclose(middle.kernel(5.0, 5.0), 2.0, rtol=1e-9)


HYPER = {
    "matern": lambda h: mercer.Matern(1.5, h, 1.0, LINE, 10),
    "laplacian": lambda h: h * mercer.Laplacian(LINE, 10) ** 2,
    "squared_exponential": lambda h: mercer.SquaredExponential(h, 1.0, LINE, 8),
    "periodic": lambda h: mercer.Periodic(0.7, 0.5 * h, LINE, 3),
    "sum": lambda h: mercer.Matern(1.5, h, 1.0, LINE, 4) + mercer.BrownianMotion(2, LINE),
}


@pytest.mark.parametrize("name", HYPER)
def test_hyperparameters_can_be_traced_and_differentiated(name):
    def evidence_like(h):
        spectrum = HYPER[name](h)
        energy = mercer.Quadrature(spectrum, 120)(
            lambda x: (x[0] + 1.3) * (2.2 - x[0]) * jnp.sin(x[0])
        )
        return energy + jnp.sum(spectrum.log_eigenvalues[:4]) + spectrum.kernel(0.1, 0.4)

    value, slope = jax.jit(jax.value_and_grad(evidence_like))(0.3)
    # The sum's two bases nearly span each other, so its energy loses some eight digits.
    np.testing.assert_allclose(value, evidence_like(0.3), rtol=1e-6)
    step = 1e-5
    numeric = (evidence_like(0.3 + step) - evidence_like(0.3 - step)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=1e-4)


def test_smoothness_of_a_brownian_sheet_is_that_of_brownian_motion():
    sheet = mercer.TensorProduct(mercer.BrownianMotion(20), mercer.BrownianMotion(20))
    assert sheet.path_order == 0.5
    assert sheet.decay == 2


def test_sum_of_equal_spectra_doubles():
    bridge = mercer.BrownianBridge(30, LINE)
    double = bridge + bridge
    np.testing.assert_allclose(double.log_eigenvalues, (2.0 * bridge).log_eigenvalues, rtol=1e-9)


def test_printed_product_formula_is_a_tensor_product():
    bridge = mercer.BrownianBridge(20)
    product = mercer.TensorProduct(bridge, bridge, num_modes=30)
    laplacian = mercer.Laplacian(mercer.Box([0.0, 0.0], [1.0, 1.0]), 30) ** 1.5
    np.testing.assert_allclose(product.log_eigenvalues[0], -4 * np.log(np.pi))
    np.testing.assert_allclose(laplacian.log_eigenvalues[0], -1.5 * np.log(2 * np.pi**2))


def test_nystrom_finds_the_eigenvalues_of_brownian_motion():
    found = mercer.Nystrom(
        lambda s, t: jnp.minimum(s[0], t[0]), mercer.Interval(0, 1), 10, num_points=1000
    )
    np.testing.assert_allclose(
        found.log_eigenvalues, mercer.BrownianMotion(10).log_eigenvalues, atol=2e-4
    )


def test_nystrom_above_three_dimensions():
    box = mercer.Box([0.0] * 5, [1.0] * 5)
    spectrum = mercer.Nystrom(
        lambda s, t: jnp.exp(-jnp.sum((s - t) ** 2)), box, 20, num_points=1024
    )
    points = box.lattice(jax.random.key(1), 2**14)
    values = jax.vmap(spectrum.eigenfunctions)(points)
    gram = values.T @ values / points.shape[0]
    np.testing.assert_allclose(gram, np.eye(20), atol=0.05)


def test_own_spectrum_in_ten_lines():
    class Haar(mercer.spectra.Spectrum):
        domain: mercer.domains.Domain

        @property
        def log_eigenvalues(self):
            return jnp.log(jnp.array([1.0, 0.25]))

        def eigenfunctions(self, x):
            t = self.domain.point(x)[0]
            return jnp.stack([jnp.ones(()), jnp.where(t < 0.5, 1.0, -1.0)])

    spectrum = Haar(mercer.Interval(0, 1))
    assert float(spectrum.kernel(0.2, 0.7)) == 0.75
    assert (spectrum[:1]).num_modes == 1


@pytest.mark.float32
def test_families_work_in_the_floats_at_hand():
    tolerance = 1e-8 if jax.config.read("jax_enable_x64") else 2e-3
    for spectrum in (
        mercer.BrownianMotion(50, LINE),
        mercer.Laplacian(BOX, 40) ** 2,
        mercer.Matern(1.5, 0.3, 2.0, LINE, 50),
        mercer.SquaredExponential(0.5, 1.0, mercer.RealLine(1.0), 30),
        mercer.Periodic(0.7, 0.2, LINE, 3),
    ):
        nodes, weights = spectrum.domain.quadrature(spectrum.quadrature_points())
        values = jax.vmap(spectrum.eigenfunctions)(nodes)
        gram = values.T @ (weights[:, None] * values)
        np.testing.assert_allclose(gram, np.eye(spectrum.num_modes), atol=tolerance)
        x = spectrum.domain.sample(jax.random.key(0), 1)[0]
        assert float(spectrum.tail_variance(x)) <= float(spectrum.kernel(x, x))
