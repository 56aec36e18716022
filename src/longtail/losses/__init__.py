"""Losses: tensors and numbers in, a scalar out. `reduction` says what they share."""

from longtail.losses.binary import BalancedBCE as BalancedBCE
from longtail.losses.binary import BinaryCrossEntropy as BinaryCrossEntropy
from longtail.losses.binary import ClassBalancedBCE as ClassBalancedBCE
from longtail.losses.ldam import LDAM as LDAM
from longtail.losses.softmax import BalancedSoftmax as BalancedSoftmax
from longtail.losses.softmax import CrossEntropy as CrossEntropy
from longtail.losses.softmax import LogitAdjusted as LogitAdjusted
from longtail.losses.weights import effective_number as effective_number
