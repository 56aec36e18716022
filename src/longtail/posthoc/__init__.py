"""Post-hoc adjustment: improve the logits of a trained network on validation images."""

from longtail.posthoc.adjusting import Adjustment as Adjustment
from longtail.posthoc.adjusting import adjustment as adjustment
