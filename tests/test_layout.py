"""Imports point one way, files stay small, and the public names are there."""

import ast
from pathlib import Path

import pytest

import mercer

SOURCE = Path(mercer.__file__).parent
ORDER = [
    "threads", "version", "checks", "lattice", "domains", "spectra", "energy", "networks", "readout",
    "terms", "unknowns", "likelihoods", "density", "posterior", "coordinates", "whitened",
    "fidelity", "design",
    "reference", "describe", "diagnostics", "rows", "predict", "draws", "sampling", "conditioned",
    "hyper", "pde", "plots", "data", "isotropic", "regression", "regressor",
    "experiments", "cli",
]  # fmt: skip


def imported(path: Path) -> set[str]:
    """Top-level modules of the package that a file imports."""
    depth = len(path.relative_to(SOURCE).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
    return found


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_point_one_way(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    for other in imported(path):
        assert ORDER.index(other) < ORDER.index(own), f"{own} must not import {other}"


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_functions_fit_on_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 60, f"{node.name} is two functions"


def test_public_names():
    names = """Interval Box RealLine Empirical BrownianMotion BrownianBridge Laplacian Matern
    SquaredExponential Periodic TensorProduct FiniteRank Nystrom describe MonteCarlo Lattice
    Quadrature FourierMLP Prior fidelity design Posterior Gaussian Heteroscedastic StudentT
    Bernoulli Poisson"""
    missing = [name for name in names.split() if not hasattr(mercer, name)]
    assert not missing
