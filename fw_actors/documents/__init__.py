"""DocTypes and documents: the layer whose changes become events."""
