"""Known classes that are pretended to be unknown: whether they tell which scores find unknown inputs."""
