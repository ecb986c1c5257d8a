"""When the network prior converges to the process: errors in closed form against width, K, reference."""

import dataclasses

import numpy as np

from .case_study import closed_form, grid_of
from .experiment import Arrays, Run, fold
from .processes import Network, Process


@dataclasses.dataclass(frozen=True)
class Convergence:
    """The sizes that are tried; frequency scales are tried for each width and the best is kept."""

    widths: tuple[int, ...]
    frequency_scales: tuple[float, ...]
    fixed: Network
    modes: tuple[int, ...]
    readout_scales: tuple[float, ...]
    num_hidden: int


def measure_convergence(process: Process, run: Run) -> Arrays:
    """Largest covariance errors, averaged over hidden layers."""
    sizes: Convergence = run.settings.convergence
    times = grid_of(100, process)
    kernel = process.kernel(times, times)

    def error(network: Network) -> float:
        prior = network.prior(process, fold(run.shared, "network"))
        mean = closed_form(prior, fold(run.key, "hidden"), times, sizes.num_hidden)[1]
        return float(np.max(np.abs(mean - kernel)))

    by_width = []
    for width in sizes.widths:
        run.tell(f"      width {width}")
        tried = [
            error(Network(width, 2 * width, f, 4.0, 100.0, 0.5 / width))
            for f in sizes.frequency_scales
        ]
        by_width.append(min(tried))
    fixed = sizes.fixed
    points = process.make_spectrum(max(sizes.modes)).quadrature_points()
    run.tell("      modes and readout scales")
    by_modes = [
        error(dataclasses.replace(fixed, num_modes=k, num_points=points)) for k in sizes.modes
    ]
    by_scale = [error(dataclasses.replace(fixed, readout_scale=s)) for s in sizes.readout_scales]
    return {
        "widths": np.array(sizes.widths),
        "by_width": np.array(by_width),
        "tail": np.array([missing_variance(process, w, times) for w in sizes.widths]),
        "modes": np.array(sizes.modes),
        "by_modes": np.array(by_modes),
        "tail_by_modes": np.array([missing_variance(process, k, times) for k in sizes.modes]),
        "scales": np.array(sizes.readout_scales),
        "by_scale": np.array(by_scale),
        "fixed_width": fixed.width,
    }


def missing_variance(process: Process, num_modes: int, times: np.ndarray) -> float:
    """What the process itself loses when it is cut after this many modes: the fixed-basis limit."""
    spectrum = process.make_spectrum(num_modes)
    lam = np.exp(np.asarray(spectrum.log_eigenvalues))
    frequency = 1 / np.sqrt(lam)
    kept = 2 * np.sin(np.outer(times, frequency)) ** 2 @ lam
    return float(np.max(process.variance(times) - kept))
