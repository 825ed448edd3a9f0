"""Calls every verb with values of the wrong kind and prints a line for each: case|verb|error|message.

A script of its own: while tests run, types in signatures are checked before any function of ours sees its arguments.
"""

import torch
from torch import nn

import posterity as pt

x = torch.randn(12, 4)
y = x[:, :3].argmax(1)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


prior = pt.isotropic(net())
VERBS = {
    "learn": lambda model, **given: pt.learn(model, (x, y), progress=False, **given),
    "adapt": lambda model, **given: pt.adapt(model, (x, y), prior, progress=False, **given),
    "posterior": lambda model, **given: pt.posterior(model, (x, y), progress=False, **given),
    "estimate": lambda model, estimator=None, **given: pt.estimate(model, (x, y), estimator, progress=False, **given),
    "train": lambda model, **given: pt.train(model, (x, y), epochs=1, progress=False, **given),
    "certify": lambda model, **given: pt.certify(model, prior, prior, (x, y), progress=False, **given),
    "prior": lambda model, **given: pt.prior(model, x, progress=False, **given),
    "predict": lambda model, **given: pt.predict(model, prior, x, **given),
}
LIKELIHOOD = [verb for verb in VERBS if verb != "prior"]
ESTIMATOR = ["learn", "adapt", "posterior", "estimate", "prior"]
CASES = {
    "classification": (LIKELIHOOD, {"likelihood": "classification"}),
    "regression": (LIKELIHOOD, {"likelihood": "regression"}),
    "a likelihood's class": (LIKELIHOOD, {"likelihood": pt.GaussianNoise}),
    "an estimator's class": (ESTIMATOR, {"estimator": pt.KFAC}),
    "an estimator's name": (ESTIMATOR, {"estimator": "kfac"}),
    "no network": (VERBS, {"model": "resnet"}),
    "a network's class": (VERBS, {"model": nn.Linear}),
}
for case, (verbs, given) in CASES.items():
    for verb in verbs:
        try:
            VERBS[verb](**({"model": net()} | given))
            print(case, verb, "nothing", "no error was raised", sep="|")
        except Exception as error:
            print(case, verb, type(error).__name__, str(error).replace("\n", " "), sep="|")
