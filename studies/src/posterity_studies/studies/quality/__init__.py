"""Is a posterior better than none: our default call beside what a user would do without it, on one page."""
