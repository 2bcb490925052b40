"""The picture of budgets."""

import numpy as np
import pytest

from glassrank.research.commands.budget_report import _figure
from glassrank.research.evaluate.budget_curve import Speed, TimeCurve
from glassrank.research.evaluate.measures import Measure
from glassrank.research.evaluate.timed_models import BudgetReport, Line

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("count", [1, 35])
def test_many_models_take_no_room_from_the_lines(count: int) -> None:
    curve = TimeCurve(Measure.parse("RR@10"), np.array([0.2, 0.3, 0.4]), Speed(1.0, 1.0), 2)
    lines = [Line(f"model {n}", "live", curve.speed, {"RR@10": curve}) for n in range(count)]
    report = BudgetReport(2, 2, "dev", {}, 5, lines)
    figure = _figure(report)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().height * figure.get_size_inches()[1] > 2  # inches
