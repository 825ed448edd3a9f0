"""A trained network becomes a posterior, with laplace-torch: all weights, in its Kronecker form."""

import torch
from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.walks.inputs import report, scores, trained

model, train, validation, (x, y) = trained()
for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.requires_grad_(False)  # its curvature knows linear and convolution layers
loader = DataLoader(TensorDataset(*train), batch_size=100)
la = Laplace(model, "classification", subset_of_weights="all", hessian_structure="kron")
la.fit(loader)
la.optimize_prior_precision(method="gridsearch", val_loader=DataLoader(TensorDataset(*validation), batch_size=50))
torch.save(la.state_dict(), "theirs.pt")
with torch.no_grad():  # its outputs would keep every Jacobian
    probs = torch.cat([la(part, pred_type="glm", link_approx="probit") for part in x.split(50)])
report(**scores(probs, y))
