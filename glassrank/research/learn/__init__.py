"""`glassrank learn`: a model learns a collection, from its documents or from a log of clicks."""
