"""Points and rules integrate against the measure they claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.domains import require_inside
from mercer.fidelity import comparison_points
from mercer.lattice import GENERATING_VECTOR, rank_one_lattice

DOMAINS = {
    "interval": mercer.Interval(-1.3, 2.2),
    "box": mercer.Box([-1.0, 0.5, 2.0], [1.0, 2.0, 2.5]),
    "line": mercer.RealLine(1.7),
    "cloud": mercer.Empirical(np.random.default_rng(0).normal(size=(300, 2))),
}


@pytest.fixture(params=DOMAINS)
def domain(request):
    return DOMAINS[request.param]


def smooth(x):
    return jnp.exp(-0.3 * jnp.sum(x**2)) * jnp.cos(jnp.sum(x))


def integral(domain):
    nodes, weights = domain.quadrature(60)
    return float(jnp.sum(weights * jax.vmap(smooth)(nodes)))


def test_weights_sum_to_the_measure(domain):
    weights = domain.quadrature(20)[1]
    np.testing.assert_allclose(jnp.sum(weights), domain.measure, rtol=1e-12)


def test_quadrature_has_converged(domain):
    nodes, weights = domain.quadrature(41)
    np.testing.assert_allclose(
        jnp.sum(weights * jax.vmap(smooth)(nodes)), integral(domain), rtol=1e-7
    )


@pytest.mark.parametrize("method", ["sample", "lattice"])
def test_averages_are_unbiased(domain, method):
    keys = jax.random.split(jax.random.key(1), 400)
    average = jax.vmap(
        lambda k: domain.measure * jnp.mean(jax.vmap(smooth)(getattr(domain, method)(k, 64)))
    )
    values = np.asarray(average(keys))
    z = (values.mean() - integral(domain)) / (values.std(ddof=1) / np.sqrt(len(values)))
    assert abs(z) < 4


@pytest.mark.parametrize("name", ["interval", "box", "line"])
def test_lattice_beats_random_points(name):
    domain = DOMAINS[name]

    def variance(method):
        keys = jax.random.split(jax.random.key(2), 100)
        average = jax.vmap(lambda k: jnp.mean(jax.vmap(smooth)(getattr(domain, method)(k, 256))))
        return float(jnp.var(average(keys)))

    assert variance("lattice") < 0.05 * variance("sample")


def test_points_are_inside(domain):
    points = jnp.concatenate(
        [domain.sample(jax.random.key(0), 64), domain.lattice(jax.random.key(0), 64)]
    )
    assert bool(jnp.all(jax.vmap(domain.contains)(points)))


def test_sample_of_the_line_is_normal():
    points = DOMAINS["line"].sample(jax.random.key(0), 5000)[:, 0]
    assert stats.kstest(np.asarray(points) / 1.7, "norm").pvalue > 1e-3


def test_excess_says_how_far_outside():
    box = DOMAINS["box"]
    assert float(box.excess([0.0, 2.75, 2.2])) == 0.75
    assert not bool(box.contains([0.0, 2.75, 2.2]))
    assert bool(box.contains([0.0, 1.0, 2.2]))


def test_numbers_are_points_of_an_interval():
    assert DOMAINS["interval"].point(0.5).shape == (1,)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        DOMAINS["box"].point([0.5, 0.5])


def p2(vector, size):
    """Squared worst-case error for smooth periodic functions, weights 1/j."""
    k = np.arange(size)
    product = np.ones(size)
    for j, z in enumerate(vector, start=1):
        t = (k * z % size) / size
        product *= 1 + 2 * np.pi**2 * (t**2 - t + 1 / 6) / j
    return product.mean() - 1


@pytest.mark.parametrize("power", [8, 10, 12, 14, 16])
@pytest.mark.parametrize("dimension", [2, 4, 8])
def test_generating_vector_is_among_the_best_at_every_size(power, dimension):
    """One vector for all sizes, so not the best at each: its error is near the best of 200."""
    size = 2**power
    random = np.random.default_rng(power).integers(0, size // 2, (200, dimension)) * 2 + 1
    errors = [p2(vector, size) for vector in random]
    ours = p2(GENERATING_VECTOR[:dimension], size)
    assert ours <= np.median(errors)
    assert np.sqrt(ours) <= 1.6 * np.sqrt(np.min(errors))


def test_lattice_points_fill_every_axis():
    points = rank_one_lattice(2**10, 8)
    for axis in range(8):
        np.testing.assert_array_equal(np.sort(points[:, axis]), np.arange(2**10) / 2**10)


@pytest.mark.float32
def test_points_in_the_floats_at_hand():
    for some in DOMAINS.values():
        assert some.sample(jax.random.key(0), 8).dtype == jnp.zeros(()).dtype
        assert bool(jnp.all(jnp.isfinite(some.lattice(jax.random.key(0), 8))))


def random_boxes():
    """Boxes whose sides are no round numbers, some far from the origin, some thin."""
    rng = np.random.default_rng(11)
    yield mercer.Box([-0.1, -0.1], [0.96, 1.11])
    for i in range(40):
        dimension = 1 + i % 4
        lower = rng.normal(size=dimension) * 10.0 ** rng.integers(-3, 4, dimension)
        size = rng.uniform(0.1, 3.0, dimension) * 10.0 ** rng.integers(-2, 3, dimension)
        yield mercer.Box(lower.tolist(), (lower + size).tolist())


@pytest.mark.float32
def test_boxes_contain_their_own_points_whatever_their_sides():
    """Rounding must not put a corner outside of the box that it is a corner of."""
    for box in random_boxes():
        points = [comparison_points(box), box.quadrature(3)[0], box.lattice(None, 16)]
        points.append(box.from_unit(jnp.eye(box.dimension)))
        for some in points:
            require_inside(box, some)
            assert bool(jnp.all(jax.vmap(box.contains)(some))), box
