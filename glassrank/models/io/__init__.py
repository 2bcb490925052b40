"""Model folders: their format, loading and saving."""
