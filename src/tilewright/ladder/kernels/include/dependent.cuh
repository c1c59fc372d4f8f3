// Programmatic dependent launch: the grid is put on the SMs while the one before it in the stream ends, and its threads
// wait here before they touch memory. What a launch costs (a fifth of a microsecond of an H200) is hidden by that grid.
// PTX ISA, "griddepcontrol": all grids that this one depends on have completed, and what they wrote is visible.
// The launcher asks for it where the PTX shows that nothing comes before; otherwise, and on earlier cards, it does nothing.
#pragma once

__device__ __forceinline__ void wait_for_previous_grid() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next grid may come as soon as all blocks of this one have said so, and as there is room: what it has to make ready
// before its wait, it makes ready while this one works.
__device__ __forceinline__ void let_next_grid_come() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
