"""The plan's passes over memory: photos, pools, sums, batch norm, the loss, the update."""
