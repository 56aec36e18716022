"""Analyses of a trained network, written as arrays to the folder `analysis/` of a run.

`longtail.report.figures` plots them.
"""

from longtail.analysis.distillation import analyse_teacher as analyse_teacher
from longtail.analysis.distillation import analyse_tokens as analyse_tokens
from longtail.analysis.distillation import analyse_training as analyse_training
from longtail.analysis.distillation import curves as curves
from longtail.analysis.gradcam import enlarged as enlarged
from longtail.analysis.gradcam import grad_cam as grad_cam
from longtail.analysis.relations import ByClass as ByClass
from longtail.analysis.relations import attention as attention
from longtail.analysis.relations import cross_gradients as cross_gradients
from longtail.analysis.relations import relations as relations
from longtail.analysis.saliency import saliency_map as saliency_map
from longtail.analysis.transformers import attention_distance as attention_distance
from longtail.analysis.transformers import attention_maps as attention_maps
from longtail.analysis.transformers import entropy as entropy
from longtail.analysis.transformers import feature_rank as feature_rank
from longtail.analysis.transformers import rollout as rollout
from longtail.analysis.writing import analyse as analyse
