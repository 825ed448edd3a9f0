"""The commands `posterity study` and `posterity demo`."""
