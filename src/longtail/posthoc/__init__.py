"""Logits in, better logits out: what can be mended after training, chosen on validation images."""

from longtail.posthoc.adjusting import Adjustment as Adjustment
from longtail.posthoc.adjusting import adjustment as adjustment
