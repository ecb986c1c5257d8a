"""Models in files: what is read is what was written, and nothing but this package's classes is built."""

import io
import json
import pickle
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from families import make_families

POINTS = np.linspace(0.1, 0.9, 5)[:, None]
FAMILIES = make_families() if jax.config.read("jax_enable_x64") else {}


class Wave(eqx.Module):
    """A network of a user's own class."""

    readout: jax.Array

    def __call__(self, x):
        return jnp.sum(self.readout * jnp.sin(jnp.arange(1.0, 4.0) * x[0]))


def save_and_load(model, folder):
    path = folder / "model.mercer"
    mercer.save(path, model)
    assert [entry.name for entry in folder.iterdir()] == ["model.mercer"]
    return mercer.load(str(path))


def pickle_and_back(model, folder):
    return pickle.loads(pickle.dumps(model))


@pytest.fixture(params=[save_and_load, pickle_and_back], ids=["saved", "pickled"])
def round_trip(request, tmp_path):
    return lambda model: request.param(model, tmp_path)


def make_prior(energy=None, **options):
    network = mercer.FourierMLP(
        1, 12, num_frequencies=4, boundary=("dirichlet", "neumann"), key=jax.random.key(0),
        saturation=0.1, **options,
    )  # fmt: skip
    return mercer.Prior(energy or mercer.Quadrature(mercer.BrownianMotion(20)), network, 2.0)


def make_posterior(likelihood=None, **options):
    likelihood = likelihood or mercer.Gaussian(mercer.hyper.LogNormal(0.2, 0.5))
    return mercer.Posterior(make_prior(), likelihood, (POINTS, np.sin(POINTS[:, 0])), **options)


def assert_same(found, model):
    """The same structure, constants and all, and the same arrays to the last bit."""
    assert type(found) is type(model)
    assert jax.tree.structure(found) == jax.tree.structure(model)
    assert bool(eqx.tree_equal(found, model))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_spectrum_comes_back(name, tmp_path):
    spectrum, _ = FAMILIES[name]
    if name.startswith("nystrom") or name == "finite_rank":
        # Made of a function of the test's own.
        with pytest.raises(ValueError, match="use pickle"):
            mercer.save(tmp_path / "model", spectrum)
        return
    found = save_and_load(spectrum, tmp_path)
    assert_same(found, spectrum)
    x = spectrum.domain.sample(jax.random.key(0), 1)[0]
    assert float(found.kernel(x, x)) == float(spectrum.kernel(x, x))


@pytest.mark.parametrize(
    "make",
    [
        make_prior,
        lambda: make_prior(mercer.Nodes("matern32", POINTS), activation="tanh"),
        lambda: mercer.IsotropicPrior(mercer.MLP(1, width=4, key=jax.random.key(0))),
    ],
    ids=["modes", "nodes", "isotropic"],
)
def test_a_prior_comes_back(make, round_trip):
    prior = make()
    found = round_trip(prior)
    assert_same(found, prior)
    drawn = prior.draw(jax.random.key(1))
    assert_same(found.draw(jax.random.key(1)), drawn)
    assert float(found(drawn)) == float(prior(drawn))


@pytest.mark.parametrize(
    "likelihood",
    [
        None,
        mercer.Gaussian(np.linspace(0.1, 0.3, 5)),
        mercer.StudentT(mercer.hyper.Above(2.0, 3.0, 0.5), 0.1),
        mercer.Poisson(),
    ],
    ids=["learned noise", "noise of each row", "learned degrees", "counts"],
)
def test_a_posterior_comes_back(likelihood, round_trip):
    targets = np.arange(5) if isinstance(likelihood, mercer.Poisson) else np.sin(POINTS[:, 0])
    likelihood = likelihood or mercer.Gaussian(mercer.hyper.LogNormal(0.2, 0.5))
    posterior = mercer.Posterior(make_prior(), likelihood, (POINTS, targets))
    found = round_trip(posterior)
    assert_same(found, posterior)
    start = posterior.init(jax.random.key(1))
    assert float(found(start)) == float(posterior(start))


def test_other_coordinates_come_back(round_trip):
    for coordinates in (mercer.Frozen, mercer.NonCentred):
        density = coordinates(make_posterior(mercer.StudentT(4.0, 0.2)))
        found = round_trip(density)
        assert_same(found, density)
        start = density.init(jax.random.key(1))
        assert float(found(start)) == float(density(start))


def test_networks_of_two_kinds_in_containers_come_back(round_trip):
    model = {
        "networks": (mercer.MLP(2, width=3, key=jax.random.key(0)), None),
        "numbers": [1, 2.5, True, "words", np.float64(0.1), np.arange(3)],
        "key": jax.random.key(7),
    }
    found = round_trip(model)
    assert_same(found["networks"], model["networks"])
    assert found["numbers"][:4] == model["numbers"][:4]
    assert isinstance(found["numbers"][5], np.ndarray)
    np.testing.assert_array_equal(found["numbers"][5], np.arange(3))
    assert jax.random.key_data(found["key"]).tolist() == [0, 7]


def test_draws_come_back_and_predict_the_same(round_trip):
    posterior = make_posterior()
    with jax.debug_key_reuse(False):
        draws = mercer.sample(
            jax.random.key(1), mercer.NonCentred(posterior), mercer.hmc(3), num_draws=6,
            num_warmup=4, num_chains=2, progress=False,
        )  # fmt: skip
    found = round_trip(draws)
    assert_same(found.density, posterior)
    assert_same(found.params, draws.params)
    assert_same(found.recorded, draws.recorded)
    np.testing.assert_array_equal(found.likelihood["scale"], draws.likelihood["scale"])
    ours, theirs = (one.predict(POINTS) for one in (found, draws))
    for field in ("mean", "sd", "quantiles"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
    assert str(found.summary()) == str(draws.summary())


REFUSED = {
    "a network of one's own class": (lambda: Wave(jnp.ones(3)), "Wave.*use pickle"),
    "a prior over it": (
        lambda: mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(5)), Wave(jnp.ones(3))),
        "Wave.*use pickle",
    ),
    "a lambda": (lambda: make_prior(activation=lambda z: z), "<lambda>.*use pickle"),
    "a function": (
        lambda: make_posterior(mercer.Gaussian(0.1, observe=lambda u, x: jax.vmap(u)(x))),
        "observe is .*<lambda>.*use pickle",
    ),
    "a mean": (
        lambda: mercer.Prior(
            mercer.Quadrature(mercer.BrownianMotion(5)),
            mercer.FourierMLP(1, 3, key=jax.random.key(0)),
            mean=jnp.sum,
        ),
        "use pickle",
    ),
    "keys that are no strings": (lambda: {1: jnp.ones(2)}, "keys are not all strings"),
    "an object": (object, "cannot be saved"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_mercers_own_is_refused(name, tmp_path):
    make, words = REFUSED[name]
    path = tmp_path / "model"
    with pytest.raises(ValueError, match=words):
        mercer.save(path, make())
    assert not list(tmp_path.iterdir())


def test_a_class_of_ones_own_is_for_pickle():
    wave = Wave(jnp.ones(3))
    assert_same(pickle_and_back(wave, None), wave)


def test_a_refusal_leaves_the_file_there_was(tmp_path):
    path = tmp_path / "model"
    mercer.save(path, mercer.BrownianMotion(5))
    with pytest.raises(ValueError, match="use pickle"):
        mercer.save(path, Wave(jnp.ones(3)))
    assert mercer.load(path).num_modes == 5
    mercer.save(path, mercer.BrownianMotion(6))
    assert mercer.load(path).num_modes == 6


def write(path, model, arrays=(), **header):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", json.dumps({"format": 1, "model": model} | header))
        for name, content in dict(arrays).items():
            archive.writestr(name, content)


FORGED = {
    "a function of the system": {"function": "os:system"},
    "a builtin": {"function": "builtins:eval"},
    "a class of the system": {"class": "subprocess:Popen", "fields": {"args": {"plain": "true"}}},
    "a builtin class": {"class": "builtins:object", "fields": {}},
    "a module by way of mercer": {"function": "mercer.saving:importlib.import_module"},
    "a class by way of mercer": {"class": "mercer.saving:zipfile.ZipFile", "fields": {}},
    "a package with a similar name": {"function": "mercerlike:run"},
    "no module": {"function": "mercer.nothing_like_this:run"},
    "no name": {"function": "mercer.saving:nothing_like_this"},
    "no path": {"function": "mercer"},
    "a function as a class": {"class": "mercer.saving:load", "fields": {}},
    "a class as no class": {"class": "mercer.saving:PLAIN", "fields": {}},
    "a field that is missing": {"class": "mercer.domains:Box"},
    "an array that is missing": {"array": 3, "jax": True},
    "an unknown kind": {"code": "print(1)"},
    "nothing": {},
    "a list": [],
    "a number": 3,
    "one within another": {"list": [{"dict": {"a": {"function": "os:system"}}}]},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_file_that_names_anything_else_is_refused(name, tmp_path):
    path = tmp_path / "model"
    write(path, FORGED[name])
    with pytest.raises(ValueError, match=r"not a model that mercer\.save wrote|does not have"):
        mercer.load(path)


def test_arrays_are_never_pickles(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap()], dtype=object), allow_pickle=True)
    path = tmp_path / "model"
    write(path, {"array": 0, "jax": False}, {"0.npy": buffer.getvalue()})
    with pytest.raises(ValueError):
        mercer.load(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "model"
    mercer.save(path, make_prior())
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"not a model that mercer\.save wrote, or is damaged"):
            mercer.load(path)
    for _ in range(40):
        spoilt = bytearray(whole)
        start = int(rng.integers(0, len(whole) - 20))
        spoilt[start : start + 20] = rng.bytes(20)
        path.write_bytes(bytes(spoilt))
        try:
            mercer.load(path)
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model"
    path.write_text("This is a text.")
    with pytest.raises(ValueError, match=r"not a model that mercer\.save wrote"):
        mercer.load(path)
    path.write_bytes(pickle.dumps(mercer.BrownianMotion(5)))
    with pytest.raises(ValueError, match=r"not a model that mercer\.save wrote"):
        mercer.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "Nothing here.")
    with pytest.raises(ValueError, match=r"not a model that mercer\.save wrote"):
        mercer.load(path)
    write(path, {"plain": 1}, format=99)
    with pytest.raises(ValueError, match="has format 99, which is not known to this version"):
        mercer.load(path)
    with pytest.raises(ValueError, match="is no file"):
        mercer.load(tmp_path)
    with pytest.raises(ValueError, match="is no file"):
        mercer.load(tmp_path / "none")


def test_a_folder_that_is_not_there_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        mercer.save(tmp_path / "nowhere" / "model.mercer", mercer.BrownianMotion(5))
