"""Training methods, one class per paper: from a batch to a loss."""

from longtail.methods.classify import Classify as Classify
from longtail.methods.distill_tokens import DistillTokens as DistillTokens
from longtail.methods.domains import AcrossDomains as AcrossDomains
from longtail.methods.masked_autoencode import MaskedAutoencode as MaskedAutoencode
from longtail.methods.mdd import MDD as MDD
from longtail.methods.paco import PaCo as PaCo
from longtail.methods.pairs import ClassifyParts as ClassifyParts
from longtail.methods.pairs import MatchOpenPairs as MatchOpenPairs
from longtail.methods.pairs import MatchPairs as MatchPairs
from longtail.methods.ride import Ride as Ride
