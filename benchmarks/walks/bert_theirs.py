"""A trained BERT becomes a posterior, with laplace-torch and its default: the last layer."""

from collections.abc import Mapping

import torch
from laplace import Laplace
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.walks.inputs import bert, report, scores

reader, batches, test = bert()


class Logits(nn.Module):
    """What laplace-torch needs: a network from a mapping to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        out: Tensor = self.reader(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return out


model = Logits().eval()
loader = DataLoader([{k: v[i] for k, v in batch.items()} for batch in batches for i in range(32)], batch_size=32)
la = Laplace(model, "classification", last_layer_name="reader.classifier")
la.fit(loader)
la.optimize_prior_precision(method="marglik")
torch.save(la.state_dict(), "theirs.pt")
report(**scores(la(test, pred_type="glm", link_approx="probit"), test["labels"]))
