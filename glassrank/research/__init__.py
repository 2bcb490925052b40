"""Training, evaluation, experiments. Nothing that searches or serves imports this."""
