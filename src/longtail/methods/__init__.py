"""Training methods, one class per paper: from a batch to a loss."""

from longtail.methods.ce_gzsl import CeGzsl as CeGzsl
from longtail.methods.classify import Classify as Classify
from longtail.methods.distill_tokens import DistillTokens as DistillTokens
from longtail.methods.domains import AcrossDomains as AcrossDomains
from longtail.methods.masked_autoencode import MaskedAutoencode as MaskedAutoencode
from longtail.methods.mdd import MDD as MDD
from longtail.methods.moco import MoCo as MoCo
from longtail.methods.moco import MoCo3 as MoCo3
from longtail.methods.paco import PaCo as PaCo
from longtail.methods.pairs import ClassifyParts as ClassifyParts
from longtail.methods.pairs import MatchOpenPairs as MatchOpenPairs
from longtail.methods.pairs import MatchPairs as MatchPairs
from longtail.methods.probe import NearestNeighbours as NearestNeighbours
from longtail.methods.probe import Probe as Probe
from longtail.methods.ride import Ride as Ride
