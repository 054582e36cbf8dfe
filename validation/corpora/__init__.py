"""Public measurements as cases: every row of data/*.csv is predicted, was given, or is listed with the reason why not."""
