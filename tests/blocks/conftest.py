"""Small tensors gain nothing from threads."""

import torch

torch.set_num_threads(1)
