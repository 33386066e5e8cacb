"""Who goes first: one small pure function a policy, all of one form (`policy`), side by side in `table`."""
