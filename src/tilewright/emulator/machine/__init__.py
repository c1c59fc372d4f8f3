"""What generated code runs against: threads, memories, warps, barriers, copies in flight."""
