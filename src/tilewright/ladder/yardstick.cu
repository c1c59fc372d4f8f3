// Copies bytes, 16 a thread: the yardstick of kernels that memory bounds. Nobody waits for anybody, so all that a SM
// holds is in flight at once; more than one pack a thread was slower on an H200.
extern "C" __global__ void __launch_bounds__(128)
copy_bytes(const uint4* __restrict__ source, uint4* __restrict__ target, unsigned long long count)
{
    const unsigned long long at = blockIdx.x * 128ull + threadIdx.x, packs = count / 16;
    if (at < packs) {
        target[at] = source[at];
    }
    if (at < count % 16) {
        reinterpret_cast<char*>(target)[packs * 16 + at] = reinterpret_cast<const char*>(source)[packs * 16 + at];
    }
}
