"""A notebook cluster's month, simulated with the product's own ledger, scoring, queue and culling."""
