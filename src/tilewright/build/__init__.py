"""NVRTC in process: source text to an artifact (cubin, PTX, resources), through a content-addressed cache.

``tilewright.build.artifact`` holds the types, ``tilewright.build.build`` the one function that others call.
"""
