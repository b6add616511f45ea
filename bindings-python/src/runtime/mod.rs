//! The Python runtime as the engine sees it: registration, the frame walk, names. Not here: the Python-facing API.
