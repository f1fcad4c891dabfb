"""Getting checkpoints onto this machine: hub, folders, and the default one without a hub."""
