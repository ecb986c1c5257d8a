"""What the estimator is made of: networks of known units, their evidence, and noise that varies."""
