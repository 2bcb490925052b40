"""One file for each family of models, one contract for all."""
