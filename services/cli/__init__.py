"""The door for people: the `perpetune` command. One file a subcommand, imported when called."""
