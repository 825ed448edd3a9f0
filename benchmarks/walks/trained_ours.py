"""A trained network becomes a posterior, with Posterity."""

import posterity as pt
from benchmarks.walks.inputs import report, scores, trained

model, train, (x, y) = trained()
fit = pt.posterior(model, train)
fit.posterior.save("ours.safetensors")
report(**scores(fit.predict(x).probs, y))
