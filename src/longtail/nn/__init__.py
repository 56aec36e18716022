"""Networks, heads, necks and other parts that timm does not have."""

from longtail.nn.batchformer import BatchFormer as BatchFormer
from longtail.nn.batchformer import Streams as Streams
from longtail.nn.heads import HEADS as HEADS
from longtail.nn.heads import Cosine as Cosine
from longtail.nn.heads import CosineExperts as CosineExperts
from longtail.nn.heads import Head as Head
from longtail.nn.heads import Linear as Linear
from longtail.nn.heads import TokenHeads as TokenHeads
from longtail.nn.heads import build_head as build_head
from longtail.nn.memory import Frozen as Frozen
from longtail.nn.memory import Queue as Queue
from longtail.nn.memory import Teacher as Teacher
from longtail.nn.neck import Neck as Neck
from longtail.nn.neck import PassThrough as PassThrough
from longtail.nn.neck import Stream as Stream
from longtail.nn.neck import Streamed as Streamed
from longtail.nn.networks import NETWORKS as NETWORKS
from longtail.nn.networks import Adjusted as Adjusted
from longtail.nn.networks import Classifier as Classifier
from longtail.nn.networks import Embedded as Embedded
from longtail.nn.networks import Network as Network
from longtail.nn.networks import build as build
from longtail.nn.networks import join as join
from longtail.nn.normalize import Normalize as Normalize
