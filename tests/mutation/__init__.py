"""Whether the tests notice when the code is wrong: each small change to it must make some test fail."""
