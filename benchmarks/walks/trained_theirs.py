"""A trained network becomes a posterior, with laplace-torch and its default: the last layer, in its Kronecker form."""

import torch
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.walks.inputs import report, scores, trained, tuning

model, train, validation, (x, y) = trained()
la = Laplace(model, "classification")
la.fit(DataLoader(TensorDataset(*train), batch_size=100))
la.optimize_prior_precision(method=tuning, val_loader=DataLoader(TensorDataset(*validation), batch_size=100))
torch.save(la.state_dict(), "theirs.pt")
with torch.no_grad():
    probs = la(x, pred_type="glm", link_approx="probit")
report(**scores(probs, y))
