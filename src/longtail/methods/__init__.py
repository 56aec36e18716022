"""One paper, one file, one class: a batch in, a loss out."""

from longtail.methods.classify import Classify as Classify
from longtail.methods.distill_tokens import DistillTokens as DistillTokens
from longtail.methods.masked_autoencode import MaskedAutoencode as MaskedAutoencode
from longtail.methods.paco import PaCo as PaCo
from longtail.methods.ride import Ride as Ride
