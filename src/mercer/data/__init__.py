"""The paper's data, shipped with the package; README.md beside this file says where they are from."""

import dataclasses
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# Rows of each window to train on: those up to t = 0.65, within a row.
TRAINING_ROWS = {"four_weekly": 48, "monthly": 48, "ridgelet": 43}
DAYS_A_YEAR = 365.2425


@dataclasses.dataclass(frozen=True)
class Series:
    """CO2 in ppm with both axes scaled to [0, 1]; `year` is one year in scaled time.

    `train` marks the first rows, t ≤ 0.65 or so; `unit` is one unit of y in ppm.
    """

    times: np.ndarray
    values: np.ndarray
    train: np.ndarray
    year: float
    unit: float


def motorcycle() -> tuple[np.ndarray, np.ndarray]:
    """Times in ms and accelerations in g, 133 rows, some times more than once.

    >>> times, accelerations = motorcycle()
    >>> times.shape, accelerations.shape
    ((133,), (133,))
    """
    table = _read("mcycle.csv")
    return table["times_ms"], table["accel_g"]


def motorcycle_strata() -> tuple[np.ndarray, np.ndarray]:
    """Times in ms and the published residual variance in g² of the stratum each lies in."""
    table = _read("mcycle94_boot_motor.csv")
    return table["times_ms"], table["v"]


def co2(window: str = "four_weekly") -> Series:
    """Mauna Loa CO2 in one of three readings of the paper's window.

    >>> series = co2()
    >>> len(series.times), int(series.train.sum()), round(series.year, 3)
    (74, 48, 0.179)
    """
    if window not in TRAINING_ROWS:
        raise ValueError(f"window must be one of {tuple(TRAINING_ROWS)}, got {window!r}.")
    days, values = _weekly()
    if window == "four_weekly":
        within = days <= (np.datetime64("1963-11-02") - np.datetime64("1958-03-29")).astype(int)
        days, values = days[within][::4], _fill(values)[within][::4]
    else:
        days, values = _monthly(days, values, window)
    span, lowest = days[-1] - days[0], values.min()
    unit = float(values.max() - lowest)
    times = (days - days[0]) / span
    return Series(
        times,
        (values - lowest) / unit,
        np.arange(len(times)) < TRAINING_ROWS[window],
        float(DAYS_A_YEAR / span),
        unit,
    )


def insulation() -> tuple[np.ndarray, np.ndarray]:
    """Positions in [0, 1] and noisy temperatures in K: a reconstruction, not OFI data."""
    table = _read("ofi_like_profile_51.csv")
    return table["y"], table["T_obs_K"]


def insulation_truth() -> tuple[np.ndarray, np.ndarray]:
    """Temperatures in K and the conductivity in W/(m K) that made the profile."""
    table = _read("kappa_reference_curves.csv")
    return table["T_K"], table["k_ofi_like"]


def _read(name: str) -> dict[str, np.ndarray]:
    path = HERE / name
    names = path.read_text().splitlines()[0].split(",")
    columns = np.genfromtxt(path, delimiter=",", skip_header=1).T
    return dict(zip(names, columns, strict=True))


def _weekly() -> tuple[np.ndarray, np.ndarray]:
    """Days since the first Saturday, and weekly means, NaN where missing."""
    table = _read("co2_weekly_statsmodels.csv")
    dates = [f"{int(d):08d}" for d in table["date"]]
    dates = np.array([f"{d[:4]}-{d[4:6]}-{d[6:]}" for d in dates], "datetime64[D]")
    return (dates - dates[0]).astype(float), table["co2"]


def _fill(values: np.ndarray) -> np.ndarray:
    """Missing values on the line between their neighbours."""
    rows, known = np.arange(len(values)), np.isfinite(values)
    return np.interp(rows, rows[known], values[known])


def _monthly(days: np.ndarray, values: np.ndarray, window: str) -> tuple[np.ndarray, np.ndarray]:
    """Monthly means at months counted in days, gaps filled or dropped."""
    dates = np.datetime64("1958-03-29") + days.astype("timedelta64[D]")
    months = dates.astype("datetime64[M]")
    first = np.datetime64("1958-03", "M")
    count = 72 if window == "monthly" else 68
    means = np.full(count, np.nan)
    for i in range(count):
        measured = values[(months == first + i) & np.isfinite(values)]
        if measured.size:
            means[i] = measured.mean()
    when, known = np.arange(count) * DAYS_A_YEAR / 12, np.isfinite(means)
    return (when, _fill(means)) if window == "monthly" else (when[known], means[known])
