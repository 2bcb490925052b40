"""The compiled search takes what belongs together as one, and no step of it outgrows a screen."""

import inspect

from glassrank.backends.compiled import Compiled
from glassrank.index import scoring


def test_compiled_functions_are_short_and_take_few_parameters() -> None:
    compiled = {
        name: function.py_func
        for name, function in vars(scoring).items()
        if isinstance(function, Compiled)
    }
    assert "search_segment" in compiled
    assert len(inspect.signature(scoring.search_segment.py_func).parameters) <= 5
    for name, function in compiled.items():
        assert len(inspect.getsource(function).splitlines()) <= 70, name
        assert len(inspect.signature(function).parameters) <= 10, name
