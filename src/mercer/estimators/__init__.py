"""Estimators with scikit-learn's conventions, thin on priors, posteriors and frozen layers."""

from .regressor import MercerRegressor as MercerRegressor
