"""Reading SASS: a cubin becomes a listing, a listing becomes the proof that copies overlap the math.

``disassemble`` (listing) → ``loops_of`` (flow) → ``prove`` (proof). Nothing here runs on a GPU: order shows what the
hardware is *permitted* to overlap; only timing shows that it happens.
"""
