"""A real Kubernetes on one machine, with simulated cards: the demo and the tests stand on it."""
