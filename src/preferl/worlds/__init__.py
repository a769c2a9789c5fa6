"""Environments of our own, which have ids in gymnasium once `preferl.simulators` has been asked."""
