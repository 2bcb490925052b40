"""Measures at every cutoff and re-ranking depth, and whether differences are more than chance."""

from glassrank.research.evaluate.evaluate import DepthCurve as DepthCurve
from glassrank.research.evaluate.evaluate import Evaluation as Evaluation
from glassrank.research.evaluate.evaluate import evaluate as evaluate
from glassrank.research.evaluate.evaluate import evaluate_at_cutoffs as evaluate_at_cutoffs
from glassrank.research.evaluate.evaluate import evaluate_at_depths as evaluate_at_depths
from glassrank.research.evaluate.judged import Judged as Judged
from glassrank.research.evaluate.measures import Measure as Measure
from glassrank.research.evaluate.significance import Comparison as Comparison
from glassrank.research.evaluate.significance import NonInferiority as NonInferiority
from glassrank.research.evaluate.significance import PairedTest as PairedTest
from glassrank.research.evaluate.significance import compare as compare
from glassrank.research.evaluate.significance import compare_all as compare_all
from glassrank.research.evaluate.significance import correct as correct
from glassrank.research.evaluate.significance import non_inferiority as non_inferiority
from glassrank.research.evaluate.significance import paired_t_test as paired_t_test
from glassrank.research.evaluate.significance import permutation_test as permutation_test
