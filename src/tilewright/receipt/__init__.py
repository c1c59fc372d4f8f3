"""The receipt: one run's record. ``record`` holds the types and their JSON, ``text`` draws, ``write`` stores them."""
