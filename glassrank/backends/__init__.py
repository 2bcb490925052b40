"""The maths that several models share, each written once. Nothing is imported here: compiled forms
need no torch."""
