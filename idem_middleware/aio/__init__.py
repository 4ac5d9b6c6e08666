"""The engine for callers on an event loop. Nothing here blocks one, or is tied to the first one that it meets."""
