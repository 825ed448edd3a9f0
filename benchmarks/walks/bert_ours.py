"""A trained BERT becomes a posterior, with Posterity."""

import posterity as pt
from benchmarks.walks.inputs import bert, report, scores

model, batches, test = bert()
fit = pt.posterior(model, batches)
fit.posterior.save("ours.safetensors")
labels = test.pop("labels")
report(**scores(fit.predict(test).probs, labels))
