"""What to cite for a recipe, as BibTeX."""

from __future__ import annotations

from collections.abc import Mapping

CITATIONS: Mapping[str, tuple[str, ...]] = {
    "balanced_softmax": (
        """@inproceedings{ren2020balanced,
  title = {Balanced Meta-Softmax for Long-Tailed Visual Recognition},
  author = {Ren, Jiawei and Yu, Cunjun and Sheng, Shunan and Ma, Xiao and Zhao, Haiyu and Yi, Shuai and Li, Hongsheng},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2020}
}""",
        """@inproceedings{menon2021longtail,
  title = {Long-tail learning via logit adjustment},
  author = {Menon, Aditya Krishna and Jayasumana, Sadeep and Rawat, Ankit Singh and Jain, Himanshu and Veit, Andreas and Kumar, Sanjiv},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}""",
        """@inproceedings{hou2022batchformer,
  title = {BatchFormer: Learning to Explore Sample Relationships for Robust Representation Learning},
  author = {Hou, Zhi and Yu, Baosheng and Tao, Dacheng},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
    ),
    "ride": (
        """@inproceedings{wang2021longtailed,
  title = {Long-tailed Recognition by Routing Diverse Distribution-Aware Experts},
  author = {Wang, Xudong and Lian, Long and Miao, Zhongqi and Liu, Ziwei and Yu, Stella X.},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}""",
        """@inproceedings{hou2022batchformer,
  title = {BatchFormer: Learning to Explore Sample Relationships for Robust Representation Learning},
  author = {Hou, Zhi and Yu, Baosheng and Tao, Dacheng},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
    ),
    "paco": (
        """@inproceedings{cui2021parametric,
  title = {Parametric Contrastive Learning},
  author = {Cui, Jiequan and Zhong, Zhisheng and Liu, Shu and Yu, Bei and Jia, Jiaya},
  booktitle = {Proceedings of the IEEE/CVF International Conference on Computer Vision},
  year = {2021}
}""",
        """@inproceedings{hou2022batchformer,
  title = {BatchFormer: Learning to Explore Sample Relationships for Robust Representation Learning},
  author = {Hou, Zhi and Yu, Baosheng and Tao, Dacheng},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
    ),
    "livt": (
        """@inproceedings{xu2023learning,
  title = {Learning Imbalanced Data with Vision Transformers},
  author = {Xu, Zhengzhuo and Liu, Ruikang and Yang, Shuo and Chai, Zenghao and Yuan, Chun},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
        """@inproceedings{he2022masked,
  title = {Masked Autoencoders Are Scalable Vision Learners},
  author = {He, Kaiming and Chen, Xinlei and Xie, Saining and Li, Yanghao and Doll{\\'a}r, Piotr and Girshick, Ross},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
    ),
    "masked_autoencoder": (
        """@inproceedings{he2022masked,
  title = {Masked Autoencoders Are Scalable Vision Learners},
  author = {He, Kaiming and Chen, Xinlei and Xie, Saining and Li, Yanghao and Doll{\\'a}r, Piotr and Girshick, Ross},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
        """@inproceedings{xu2023learning,
  title = {Learning Imbalanced Data with Vision Transformers},
  author = {Xu, Zhengzhuo and Liu, Ruikang and Yang, Shuo and Chai, Zenghao and Yuan, Chun},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
    ),
    "vit_scratch": (
        """@inproceedings{xu2023learning,
  title = {Learning Imbalanced Data with Vision Transformers},
  author = {Xu, Zhengzhuo and Liu, Ruikang and Yang, Shuo and Chai, Zenghao and Yuan, Chun},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
    ),
    "deit3": (
        """@inproceedings{touvron2022deit,
  title = {{DeiT III}: Revenge of the {ViT}},
  author = {Touvron, Hugo and Cord, Matthieu and J{\\'e}gou, Herv{\\'e}},
  booktitle = {European Conference on Computer Vision},
  year = {2022}
}""",
        """@inproceedings{xu2023learning,
  title = {Learning Imbalanced Data with Vision Transformers},
  author = {Xu, Zhengzhuo and Liu, Ruikang and Yang, Shuo and Chai, Zenghao and Yuan, Chun},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
    ),
    "deit_lt": (
        """@inproceedings{rangwani2024deitlt,
  title = {{DeiT-LT}: Distillation Strikes Back for Vision Transformer Training on Long-Tailed Datasets},
  author = {Rangwani, Harsh and Mondal, Pradipto and Mishra, Mayank and Asokan, Ashish Ramayee and Babu, R. Venkatesh},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
        """@inproceedings{touvron2021training,
  title = {Training data-efficient image transformers \\& distillation through attention},
  author = {Touvron, Hugo and Cord, Matthieu and Douze, Matthijs and Massa, Francisco and Sablayrolles, Alexandre
            and J{\\'e}gou, Herv{\\'e}},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}""",
        """@inproceedings{rangwani2022escaping,
  title = {Escaping Saddle Points for Effective Generalization on Class-Imbalanced Data},
  author = {Rangwani, Harsh and Aithal, Sumukh K. and Mishra, Mayank and Babu, R. Venkatesh},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022}
}""",
    ),
    "ldam": (
        """@inproceedings{cao2019learning,
  title = {Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss},
  author = {Cao, Kaidi and Wei, Colin and Gaidon, Adrien and Arechiga, Nikos and Ma, Tengyu},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2019}
}""",
        """@inproceedings{rangwani2022escaping,
  title = {Escaping Saddle Points for Effective Generalization on Class-Imbalanced Data},
  author = {Rangwani, Harsh and Aithal, Sumukh K. and Mishra, Mayank and Babu, R. Venkatesh},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022}
}""",
    ),
    "deit": (
        """@inproceedings{touvron2021training,
  title = {Training data-efficient image transformers \\& distillation through attention},
  author = {Touvron, Hugo and Cord, Matthieu and Douze, Matthijs and Massa, Francisco and Sablayrolles, Alexandre
            and J{\\'e}gou, Herv{\\'e}},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}""",
        """@inproceedings{rangwani2024deitlt,
  title = {{DeiT-LT}: Distillation Strikes Back for Vision Transformer Training on Long-Tailed Datasets},
  author = {Rangwani, Harsh and Mondal, Pradipto and Mishra, Mayank and Asokan, Ashish Ramayee and Babu, R. Venkatesh},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
    ),
    "vit": (
        """@inproceedings{rangwani2024deitlt,
  title = {{DeiT-LT}: Distillation Strikes Back for Vision Transformer Training on Long-Tailed Datasets},
  author = {Rangwani, Harsh and Mondal, Pradipto and Mishra, Mayank and Asokan, Ashish Ramayee and Babu, R. Venkatesh},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
    ),
    "vit_crt": (
        """@inproceedings{kang2020decoupling,
  title = {Decoupling Representation and Classifier for Long-Tailed Recognition},
  author = {Kang, Bingyi and Xie, Saining and Rohrbach, Marcus and Yan, Zhicheng and Gordo, Albert and Feng, Jiashi and Kalantidis, Yannis},
  booktitle = {International Conference on Learning Representations},
  year = {2020}
}""",
        """@inproceedings{rangwani2024deitlt,
  title = {{DeiT-LT}: Distillation Strikes Back for Vision Transformer Training on Long-Tailed Datasets},
  author = {Rangwani, Harsh and Mondal, Pradipto and Mishra, Mayank and Asokan, Ashish Ramayee and Babu, R. Venkatesh},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
    ),
}
