"""The default call on tables that took no part in any choice of ours, beside plain training and an ensemble of five."""
