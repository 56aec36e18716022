"""What a trained network does, as arrays, and figures of them. Arrays go to the folder `analysis/` of a run."""

from longtail.analysis.gradcam import enlarged as enlarged
from longtail.analysis.gradcam import grad_cam as grad_cam
from longtail.analysis.relations import ByClass as ByClass
from longtail.analysis.relations import attention as attention
from longtail.analysis.relations import cross_gradients as cross_gradients
from longtail.analysis.relations import relations as relations
from longtail.analysis.writing import analyse as analyse
