"""Other people's engines as first stages, and our rankers as parts of other people's pipelines.

Each adapter is a file, and imports its package when it is imported itself: nothing else does.
"""
