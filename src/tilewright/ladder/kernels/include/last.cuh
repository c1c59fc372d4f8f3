// Who comes last: blocks that have each left something behind find out which of them may gather it, within one launch.
// PTX ISA, "atom": .inc counts up to its operand and then begins at 0 again, so the ticket is as it was for the next
// launch, and nobody has to clear it. acq_rel: what a block wrote before it drew is seen by whoever draws after it.
#pragma once

// By one thread of each of so many blocks, the one that wrote what its block leaves behind.
__device__ __forceinline__ bool draws_last(unsigned* ticket, unsigned blocks) {
    unsigned drawn;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(drawn)
                 : "l"(ticket), "r"(blocks - 1)
                 : "memory");
    return drawn == blocks - 1;
}
