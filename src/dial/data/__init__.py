"""From a user's folders to training batches: read, check, decode once, augment, balance."""
