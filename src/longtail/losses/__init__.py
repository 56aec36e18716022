"""Losses: logits and targets to a scalar. `reduction` documents what they have in common."""

from longtail.losses.binary import BalancedBCE as BalancedBCE
from longtail.losses.binary import BinaryCrossEntropy as BinaryCrossEntropy
from longtail.losses.binary import ClassBalancedBCE as ClassBalancedBCE
from longtail.losses.experts import Diversity as Diversity
from longtail.losses.experts import expert_temperature as expert_temperature
from longtail.losses.influence import InfluenceBalanced as InfluenceBalanced
from longtail.losses.lade import LADE as LADE
from longtail.losses.lade import ReleasedLADE as ReleasedLADE
from longtail.losses.ldam import LDAM as LDAM
from longtail.losses.paco import ParametricContrastive as ParametricContrastive
from longtail.losses.softmax import BalancedSoftmax as BalancedSoftmax
from longtail.losses.softmax import CrossEntropy as CrossEntropy
from longtail.losses.softmax import LogitAdjusted as LogitAdjusted
from longtail.losses.weights import class_balanced_weights as class_balanced_weights
