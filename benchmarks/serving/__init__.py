"""The same applications behind real servers, with the load on another core."""
