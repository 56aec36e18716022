"""What each keyword of our recipes means, in a sentence: `longtail train RECIPE --help` and `longtail show RECIPE` print them."""

from __future__ import annotations

from collections.abc import Mapping

KEYWORDS: Mapping[str, str] = {
    # every recipe
    "network": "A name from `longtail list`, or timm:NAME for any model of timm.",
    "weights": "Begin at random, or with timm's pretrained weights (of a network timm:NAME).",
    "epochs": "How often training goes through the images; all shares of training below scale with it.",
    "batch": "Images looked at together; few images in all ask for small batches.",
    "accumulate": "Batches whose gradients make one step: an effective batch of batch x accumulate.",
    "lr": "Highest learning rate; the recipe says whether it is for 256 images a step.",
    "weight_decay": "Pull of the weights towards zero; not on norms and biases.",
    "warmup": "Share of training in which the rate rises to its highest.",
    "warmup_start": "Where the rate begins to rise, as a share of its highest.",
    "schedule": "How the rate falls: at 0.8 and 0.9 of training, or along a cosine.",
    "augment": "How training images are changed; from weak to strong.",
    "sampling": "How often a class is drawn: as it occurs, equally often, by the square root, or from the first to the second.",
    "mixup": "Strength of mixing two images and their labels; 0 is off.",
    "cutmix": "Strength of pasting a part of one image into another, with its label; 0 is off.",
    "smoothing": "Share of a label that is spread over all classes.",
    "ema": "Decay of the moving average of the weights; 0 is off.",
    "keep": "The weights of the last epoch, or of the one that is best on validation images.",
    "size": "Side of the images that the network sees, in pixels; that of the data unless given.",
    # losses
    "loss": "A loss of LiVT's table 7 by name.",
    "tau": "Share of the prior's log (bal_bce: of its log-odds) that is added to the logits while training: 1 is all of it, 0 none.",
    "test_prior": "uniform adds log(C - 1) to the bias of bal_bce (LiVT's equation 10); the order of answers stays.",
    "margin": "Largest margin of LDAM, that of the rarest class, in cosines.",
    "defer": "Share of training after which classes are re-weighted by their effective numbers.",
    "rho": "Radius of sharpness-aware minimisation, which looks at each batch twice; 0 is off.",
    # BatchFormer
    "batchformer": "Let images of a batch attend to each other while training; frozen and self are controls.",
    "plain": "Weight of the loss without BatchFormer.",
    "attended": "Weight of the loss behind BatchFormer.",
    "loss_scale": "Factor of the whole loss: a control.",
    "batchformer_layers": "Layers of attention across the batch.",
    "batchformer_rate": "Learning rate of BatchFormer, as a share of the network's.",
    "batchformer_scope": "With several processes: attend within the batch of each, or across all.",
    # RIDE and PaCo
    "experts": "Heads with the last two stages of the network each, whose mean answers.",
    "diversity": "Weight of the divergence between an expert and the mean of all; negative pushes them apart.",
    "heat": "Share of the temperature of the diversity that follows the prior.",
    "init": "Begin with the weights of this finished run.",
    "alpha": "Weight of another image of the class, beside the centre's 1.",
    "temperature": "What contrasts are divided by: smaller is sharper.",
    "queue": "Earlier images that a batch is contrasted with.",
    "momentum": "How slowly the second network follows the first.",
    "dim": "Width of the features that are contrasted.",
    # transformers
    "patch": "Side of a patch in pixels; the largest that leaves 8 in a row unless given (or the pretrained encoder's).",
    "drop_path": "How often the last block is left out while training; earlier ones less.",
    "layer_decay": "Rate of each block as a share of the next one's; 1 is one rate for all.",
    "layer_scale": "Where the scale of each block begins.",
    "erase": "How often randaugment erases a part of an image.",
    "repeats": "Views of an image in an epoch, which then shows one in so many images; 1 shows all.",
    "mix_until": "Share of training after which nothing is mixed any more.",
    # LiVT
    "pretrained": "A run whose encoder to begin with, or a public MAE or LiVT checkpoint, instead of pretraining.",
    "pretrain_epochs": "Epochs of painting hidden patches, before labels.",
    "pretrain_batch": "Images looked at together while pretraining.",
    "pretrain_accumulate": "Batches in one step of pretraining.",
    "pretrain_lr": "Highest rate of pretraining, for 256 images a step.",
    "pretrain_size": "Side of the images while pretraining, in pixels; `size` unless given.",
    "mask": "Share of the patches that are hidden.",
    "decoder_width": "Width of the decoder that paints hidden patches.",
    "decoder_depth": "Blocks of that decoder.",
    "decoder_heads": "Attention heads of that decoder.",
    "images": "Take so many training images, equally many of each class; all unless given.",
    "probe_epochs": "Epochs of the linear classifier that judges the encoder.",
    # DeiT-LT
    "teacher": "A finished run to learn from (for deit_lt and deit also timm:NAME); without, deit_lt and deit train one first.",
    "teacher_method": "How the teacher is trained first: LDAM + DRW + SAM, or PaCo + SAM.",
    "teacher_network": "The network of that teacher.",
    "teacher_epochs": "The epochs of that teacher.",
    "teacher_rho": "The radius of sharpness-aware minimisation of that teacher.",
    "teacher_schedule": "How the rate of that teacher falls; as in its recipe unless given.",
    "teacher_view": "What the teacher sees: the student's very image, or a weakly augmented one.",
    "release": "Share of training after which the distillation token goes over from the teacher to the labels; never unless given.",
    "trained": "A finished run whose network gets a new classifier, instead of training one first.",
    "retrain_epochs": "Epochs of the new classifier.",
}


def meanings(recipe: str) -> Mapping[str, str]:
    """What the keywords of a recipe mean; of one's own (package.module:function) nothing is known."""
    return {} if ":" in recipe else KEYWORDS
