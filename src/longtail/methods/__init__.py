"""One paper, one file, one class: a batch in, a loss out."""

from longtail.methods.classify import Classify as Classify
