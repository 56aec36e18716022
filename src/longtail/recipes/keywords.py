"""What each keyword of our recipes means, in one sentence.

`longtail train RECIPE --help` and `longtail show RECIPE` print them.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYWORDS: Mapping[str, str] = {
    # every recipe
    "network": "A name from `longtail list`, or timm:NAME for any model of timm.",
    "weights": "Initial weights: random, or timm's pretrained ones (for a network timm:NAME).",
    "epochs": "Passes over the training images; all shares of training below refer to these.",
    "batch": "Images per batch; take fewer where there are few training images.",
    "accumulate": "Batches per optimizer step: the effective batch is batch x accumulate.",
    "lr": "Peak learning rate; the recipe says whether it is scaled by images per step / 256.",
    "weight_decay": "Weight decay; norms and biases have none.",
    "warmup": "Share of training in which the learning rate rises to its peak.",
    "warmup_start": "Learning rate at the start of warmup, as a share of its peak.",
    "schedule": "How the learning rate falls: in steps, as a cosine, or not at all.",
    "augment": "Augmentation of training images, from weak to strong.",
    "sampling": "By image, by class, by the square root of counts, or from image to class.",
    "mixup": "Alpha of Mixup; 0 is off.",
    "cutmix": "Alpha of CutMix; 0 is off.",
    "smoothing": "Label smoothing: share of a label that is spread over all classes.",
    "ema": "Decay of the exponential moving average of the weights; 0 is off.",
    "keep": "Which weights to keep: of the last epoch, or of the best one on validation images.",
    "size": "Side of the input images in pixels; that of the data unless given.",
    # losses
    "loss": "A loss of LiVT's table 7 by name.",
    "tau": "Factor of the log prior (bal_bce: of its log-odds) that is added to the logits.",
    "test_prior": "With uniform, bal_bce adds log(C - 1) to the bias (LiVT's equation 10).",
    "margin": "Largest margin of LDAM, which the rarest class has, in cosines.",
    "defer": "Share of training after which classes are re-weighted by their effective numbers.",
    "rho": "Radius of sharpness-aware minimization, which needs two passes per batch; 0 is off.",
    # BatchFormer
    "batchformer": "Attention across the images of a batch while training; two modes are controls.",
    "plain_weight": "Weight of the loss without BatchFormer.",
    "batchformer_weight": "Weight of the loss with BatchFormer.",
    "loss_scale": "Factor of the whole loss: a control.",
    "batchformer_layers": "Number of attention layers across the batch.",
    "batchformer_lr_scale": "Learning rate of BatchFormer, as a share of the network's.",
    "batchformer_scope": "With several processes: attend within the batch of each, or across all.",
    # domain generalisation
    "batches": "Shuffled images of all training domains, or equally many of each in every batch.",
    "steps": "Steps of an epoch, after which validation is evaluated; all images unless given.",
    "optimizer": "SGD with Nesterov momentum, or Adam (with decoupled weight decay).",
    "dropout": "Dropout before the head.",
    "freeze_batchnorm": "Whether batch norms keep the statistics of the initial weights.",
    "penalty_weight": "Weight of the penalty between domains.",
    "anneal": "Share of training in which the penalty has weight 1; then the optimizer is reset.",
    "style_stages": "Stages of the network, from 1 on, after which styles are mixed.",
    "style_probability": "Share of the batches whose styles are mixed.",
    "style_alpha": "Alpha of the Beta distribution of the mixture of two styles.",
    "n_converge": "Epochs without a lower validation loss after which SWAD starts averaging.",
    "n_tolerance": "Epochs with a loss above the tolerance after which SWAD stops averaging.",
    "tolerance_ratio": "How far above the loss at the start SWAD tolerates, as a share of it.",
    # domain adaptation
    "lr_decay": "The learning rate falls as (1 + lr_decay * share of training) ** -0.75.",
    "bottleneck": "Width of the layer between the network and the heads.",
    "head_width": "Width of the hidden layer of both heads.",
    "gamma": "Weight of the adversary's loss on source images; its logarithm is the margin.",
    "trade_off": "Weight of the adversary's losses; 0 trains on source images alone.",
    "reversal": "Factor of the adversary's reversed gradient at the end of training.",
    "reversal_speed": "How fast that factor rises, over all of training: larger is faster.",
    "batchformer_on": "BatchFormer stands after the bottleneck, or after the network before it.",
    # RIDE and PaCo
    "experts": "Number of experts, each with its last two stages and head; predictions are means.",
    "diversity": "Weight of each expert's divergence from the mean; negative pushes them apart.",
    "class_temperature": "Share of the temperature of the diversity that follows the prior.",
    "init": "A finished run whose weights training starts from.",
    "alpha": "Weight of another image of the same class; that of the class centre is 1.",
    "temperature": "Temperature of the contrastive logits: smaller is sharper.",
    "queue": "Number of earlier images that a batch is contrasted with.",
    "blur": "Probability that the second view is blurred; 0 in runs of earlier versions.",
    "momentum": "Decay of the momentum encoder, the moving average of the network.",
    "dim": "Width of the contrastive features, or of the embeddings of images and pairs.",
    # pairs of attribute and object
    "features": "Whether the network's features are trained; frozen ones get a hidden layer.",
    "hidden": "Width of a hidden layer on the network's features or on feature vectors.",
    "backbone_lr_scale": "Learning rate of the network, as a share of that of what follows it.",
    "graph_width": "Width between the two graph convolutions.",
    "graph_dropout": "Dropout before each graph convolution.",
    "word_dim": "Width of the vectors of attributes and objects, where no word vectors are given.",
    "words": "Whether the word vectors are trained further.",
    "embedder": "Widths of the layers between the network and the image embedding.",
    "embedder_dropout": "Dropout of these layers.",
    "cosine_scale": "Factor of the cosines between images and pairs.",
    "feasibility_margin": "Margin of an unseen pair in the loss, times its feasibility.",
    "feasibility_ramp": "Share of training in which that margin grows to its full size.",
    # transformers
    "pool": "Class token, trained as in DeiT; or the mean of patches, trained as in MAE and LiVT.",
    "patch": "Side of a patch in pixels; the encoder's, or the largest with 8 per row by default.",
    "drop_path": "Stochastic depth of the last block; that of earlier blocks is lower.",
    "layer_decay": "Learning rate of a block as a share of the next one's; 1 is one rate for all.",
    "layer_scale": "Initial value of the layer scales.",
    "erase": "Probability of random erasing, which is a part of randaugment.",
    "crop": "Crop of randaugment: shifts up to 32 pixels and random parts above, or parts always.",
    "repeats": "Views of an image per epoch (repeated augmentation); 1 shows every image once.",
    "mix_until": "Share of training after which Mixup and CutMix are off.",
    # LiVT
    "pretrained": "A run with an encoder, or a public MAE or LiVT checkpoint; skips pretraining.",
    "pretrain_epochs": "Epochs of masked autoencoding, without labels.",
    "pretrain_batch": "Images per batch in pretraining.",
    "pretrain_accumulate": "Batches per optimizer step in pretraining.",
    "pretrain_lr": "Peak learning rate of pretraining, for 256 images per step.",
    "pretrain_size": "Side of the images in pretraining, in pixels; `size` unless given.",
    "mask": "Share of the patches that are masked.",
    "decoder_width": "Width of the decoder that reconstructs masked patches.",
    "decoder_depth": "Number of blocks of that decoder.",
    "decoder_heads": "Number of attention heads of that decoder.",
    "images": "Number of training images to use, the same from each class; all unless given.",
    "probe_epochs": "Epochs of the linear classifier that evaluates the encoder.",
    # DeiT-LT
    "teacher": "A finished run to learn from; for deit_lt and deit also timm:NAME.",
    "teacher_method": "How a teacher is trained first: LDAM + DRW + SAM, or PaCo + SAM.",
    "teacher_network": "Network of that teacher.",
    "teacher_epochs": "Epochs of that teacher.",
    "teacher_rho": "Radius of sharpness-aware minimization of that teacher.",
    "teacher_schedule": "How that teacher's learning rate falls; as in its recipe unless given.",
    "teacher_view": "What the teacher labels: the student's image, or a weakly augmented one.",
    "release": "Share of training from which labels replace the teacher; never unless given.",
    "trained": "A finished run whose network gets a new classifier; skips the first stage.",
    "retrain_epochs": "Epochs of the new classifier.",
}


def meanings(recipe: str) -> Mapping[str, str]:
    """What the keywords of a recipe mean; nothing for a recipe of one's own, module:function."""
    return {} if ":" in recipe else KEYWORDS
