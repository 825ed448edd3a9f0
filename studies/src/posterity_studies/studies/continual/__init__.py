"""Streams of small tasks at LeNet scale: columns with learned and isotropic priors beside other learners."""
