"""Small applications to copy from, and a demonstration of what they promise: `python -m example_apps.demo`."""
