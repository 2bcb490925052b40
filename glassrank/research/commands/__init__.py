"""The commands of training and evaluation; `cli/` lists them."""
