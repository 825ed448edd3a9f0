"""The default beside plain methods tuned with the same labels, and beside its own best candidate in hindsight."""
