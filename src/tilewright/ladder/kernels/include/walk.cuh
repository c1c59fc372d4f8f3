// The order in which the tiles of a product are taken. Blocks that run at the same time should share rows of a and columns
// of b, so that L2 has them: GROUP rows of tiles are walked together, column after column.
#pragma once

struct Place {
    int row;     // of tiles
    int column;  // of tiles
};

template <int GROUP>
__device__ __forceinline__ Place place_of(int tile, int rows, int columns) {
    const int group = tile / (GROUP * columns);
    const int height = min(rows - group * GROUP, GROUP);
    const int inside = tile - group * GROUP * columns;
    return {group * GROUP + inside % height, inside / height};
}
