"""One trainer for every model: prepare arrays, then learn from them."""
