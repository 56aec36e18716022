"""Datasets, loaders, samplers and views; start at `longtail.data.open.open_data`.

This file imports nothing, so that listing dataset names does not import torch.
"""
