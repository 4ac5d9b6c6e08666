"""One module for each command, or for a few that belong together. Each is imported when it is used."""
