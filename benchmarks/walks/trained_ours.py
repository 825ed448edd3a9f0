"""A trained network becomes a posterior, with Posterity."""

import posterity as pt
from benchmarks.walks.inputs import report, scores, trained

model, train, validation, (x, y) = trained()
fit = pt.posterior(model, train, validation=validation)
fit.posterior.save("ours.safetensors")
report(**scores(fit.predict(x).probs, y))
