"""How addresses look. A global one is ``buffer_id << 40 | offset``: bounds are exact per buffer.

The other state spaces have windows in the generic space whose ids no buffer ever gets.
"""

from __future__ import annotations

OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1
LOCAL_ID = 0x7D0000
SHARED_ID = 0x7E0000
PARAM_ID = 0x7C0000
SHARED_WINDOW = SHARED_ID << OFFSET_BITS
LOCAL_WINDOW = LOCAL_ID << OFFSET_BITS
PARAM_WINDOW = PARAM_ID << OFFSET_BITS
# A shared address of another block of the cluster carries (rank + 1) here; 0 is the block's own.
RANK_BITS = 24
RANK_MASK = (1 << RANK_BITS) - 1
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}
