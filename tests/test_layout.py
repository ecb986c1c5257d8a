"""Imports point one way, files stay small, and the public names are there."""

import ast
from pathlib import Path

import pytest

import mercer

SOURCE = Path(mercer.__file__).parent
PAPER = SOURCE.parent / "mercer_paper"
ORDER = [
    "version", "checks", "lattice", "quadrature", "domains", "spectra", "kernels", "parameters",
    "energy", "random_energy", "networks", "linear", "hyperpriors", "likelihoods", "density",
    "terms", "prior", "neighbours", "tail", "posterior", "optimise", "sites", "coordinates",
    "process", "advice", "fidelity", "design", "describe", "diagnostics", "draws", "threads",
    "sampling", "hyper", "pde", "plots", "data", "estimators", "saving", "cli",
]  # fmt: skip
# What the paper's experiments may use of the package: what any user can.
PUBLIC_MODULES = ["data", "diagnostics", "hyper", "pde", "plots"]
MODULES = sorted(SOURCE.rglob("*.py"))
PAPER_MODULES = sorted(PAPER.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE.parent))


def imported(path: Path) -> set[str]:
    """Top-level modules of the package that a file imports."""
    depth = len(path.relative_to(SOURCE).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    for other in imported(path):
        assert ORDER.index(other) < ORDER.index(own), f"{own} must not import {other}"


def test_the_order_names_what_there_is():
    modules = [path.stem for path in SOURCE.glob("[!_]*.py")]
    packages = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert sorted(ORDER) == sorted(modules + packages)


def taken(path: Path) -> list[str]:
    """What a file imports of the package, in full."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in found if name.split(".")[0] == "mercer"]


@pytest.mark.parametrize("path", PAPER_MODULES, ids=name_of)
def test_experiments_use_public_names_alone(path):
    """They import `mercer`, its public names, and names that its public modules offer."""
    public = {*mercer.__all__, *PUBLIC_MODULES}
    for name in taken(path):
        below = name.split(".")[1:]
        deepest = 2 if below and below[0] in PUBLIC_MODULES else 1
        assert len(below) <= deepest, f"{name} reaches behind the public names"
        assert not below or below[0] in public, f"{name} is not public"


@pytest.mark.parametrize("path", MODULES + PAPER_MODULES, ids=name_of)
def test_functions_fit_on_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 60, f"{node.name} is two functions"


def test_public_names():
    names = """Interval Box RealLine Empirical BrownianMotion BrownianBridge Laplacian Matern
    SquaredExponential Periodic TensorProduct FiniteRank Nystrom describe MonteCarlo Lattice
    Quadrature FourierMLP Prior fidelity design Posterior Gaussian Heteroscedastic StudentT
    Bernoulli Poisson Nodes Frozen NonCentred sample save load"""
    missing = [name for name in names.split() if name not in mercer.__all__]
    assert not missing


def test_public_names_are_few_and_exist():
    assert len(mercer.__all__) == len(set(mercer.__all__)) <= 55
    missing = [name for name in mercer.__all__ if not hasattr(mercer, name)]
    assert not missing
