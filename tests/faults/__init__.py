"""Every fault at every call of every kind of request, and what comes of it."""
