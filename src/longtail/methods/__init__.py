"""Training methods, one class per paper: from a batch to a loss."""

from longtail.methods.classify import Classify as Classify
from longtail.methods.distill_tokens import DistillTokens as DistillTokens
from longtail.methods.masked_autoencode import MaskedAutoencode as MaskedAutoencode
from longtail.methods.paco import PaCo as PaCo
from longtail.methods.ride import Ride as Ride
