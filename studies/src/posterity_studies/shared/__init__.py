"""What several studies use: data sets, networks, learned priors, tasks, draws, intervals."""
