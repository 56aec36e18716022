"""One thread for every test: two cores shared by several processes are slower than one."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
