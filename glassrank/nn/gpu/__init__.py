"""Fast forms for a GPU, in Triton: each file names the plain form it must equal."""
