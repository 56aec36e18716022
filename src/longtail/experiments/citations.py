"""What to cite for a recipe, as BibTeX."""

from __future__ import annotations

from collections.abc import Mapping

REN_2020 = """@inproceedings{ren2020balanced,
  title = {Balanced Meta-Softmax for Long-Tailed Visual Recognition},
  author = {Ren, Jiawei and Yu, Cunjun and Sheng, Shunan and Ma, Xiao and Zhao, Haiyu and Yi, Shuai and Li, Hongsheng},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2020}
}"""
MENON_2021 = """@inproceedings{menon2021longtail,
  title = {Long-tail learning via logit adjustment},
  author = {Menon, Aditya Krishna and Jayasumana, Sadeep and Rawat, Ankit Singh and Jain, Himanshu and Veit, Andreas and Kumar, Sanjiv},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}"""
HOU_2022 = """@inproceedings{hou2022batchformer,
  title = {BatchFormer: Learning to Explore Sample Relationships for Robust Representation Learning},
  author = {Hou, Zhi and Yu, Baosheng and Tao, Dacheng},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}"""
WANG_2021 = """@inproceedings{wang2021longtailed,
  title = {Long-tailed Recognition by Routing Diverse Distribution-Aware Experts},
  author = {Wang, Xudong and Lian, Long and Miao, Zhongqi and Liu, Ziwei and Yu, Stella X.},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}"""
CUI_2021 = """@inproceedings{cui2021parametric,
  title = {Parametric Contrastive Learning},
  author = {Cui, Jiequan and Zhong, Zhisheng and Liu, Shu and Yu, Bei and Jia, Jiaya},
  booktitle = {Proceedings of the IEEE/CVF International Conference on Computer Vision},
  year = {2021}
}"""
XU_2023 = """@inproceedings{xu2023learning,
  title = {Learning Imbalanced Data with Vision Transformers},
  author = {Xu, Zhengzhuo and Liu, Ruikang and Yang, Shuo and Chai, Zenghao and Yuan, Chun},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}"""
HE_2022 = """@inproceedings{he2022masked,
  title = {Masked Autoencoders Are Scalable Vision Learners},
  author = {He, Kaiming and Chen, Xinlei and Xie, Saining and Li, Yanghao and Doll{\\'a}r, Piotr and Girshick, Ross},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}"""
TOUVRON_2022 = """@inproceedings{touvron2022deit,
  title = {{DeiT III}: Revenge of the {ViT}},
  author = {Touvron, Hugo and Cord, Matthieu and J{\\'e}gou, Herv{\\'e}},
  booktitle = {European Conference on Computer Vision},
  year = {2022}
}"""
RANGWANI_2024 = """@inproceedings{rangwani2024deitlt,
  title = {{DeiT-LT}: Distillation Strikes Back for Vision Transformer Training on Long-Tailed Datasets},
  author = {Rangwani, Harsh and Mondal, Pradipto and Mishra, Mayank and Asokan, Ashish Ramayee and Babu, R. Venkatesh},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}"""
TOUVRON_2021 = """@inproceedings{touvron2021training,
  title = {Training data-efficient image transformers \\& distillation through attention},
  author = {Touvron, Hugo and Cord, Matthieu and Douze, Matthijs and Massa, Francisco and Sablayrolles, Alexandre
            and J{\\'e}gou, Herv{\\'e}},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}"""
RANGWANI_2022 = """@inproceedings{rangwani2022escaping,
  title = {Escaping Saddle Points for Effective Generalization on Class-Imbalanced Data},
  author = {Rangwani, Harsh and Aithal, Sumukh K. and Mishra, Mayank and Babu, R. Venkatesh},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022}
}"""
CAO_2019 = """@inproceedings{cao2019learning,
  title = {Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss},
  author = {Cao, Kaidi and Wei, Colin and Gaidon, Adrien and Arechiga, Nikos and Ma, Tengyu},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2019}
}"""
KANG_2020 = """@inproceedings{kang2020decoupling,
  title = {Decoupling Representation and Classifier for Long-Tailed Recognition},
  author = {Kang, Bingyi and Xie, Saining and Rohrbach, Marcus and Yan, Zhicheng and Gordo, Albert and Feng, Jiashi and Kalantidis, Yannis},
  booktitle = {International Conference on Learning Representations},
  year = {2020}
}"""

CITATIONS: Mapping[str, tuple[str, ...]] = {
    "balanced_softmax": (REN_2020, MENON_2021, HOU_2022),
    "ride": (WANG_2021, HOU_2022),
    "paco": (CUI_2021, HOU_2022),
    "livt": (XU_2023, HE_2022),
    "masked_autoencoder": (HE_2022, XU_2023),
    "vit_scratch": (XU_2023,),
    "deit3": (TOUVRON_2022, XU_2023),
    "deit_lt": (RANGWANI_2024, TOUVRON_2021, RANGWANI_2022),
    "ldam": (CAO_2019, RANGWANI_2022),
    "deit": (TOUVRON_2021, RANGWANI_2024),
    "vit": (RANGWANI_2024,),
    "vit_crt": (KANG_2020, RANGWANI_2024),
}
