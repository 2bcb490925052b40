"""Fast forms for a CPU, compiled by numba: each file names the plain form it must equal."""
