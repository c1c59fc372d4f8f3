// A jump table and spills: the disassembler's remarks name the one's targets, and mark the others.
#define EVEN(n) case n: sum += data[n + steps] / (n + 2.0f); data[steps ^ n] = sum; \
    for (int j = 0; j < steps; ++j) sum += data[j * (n + 1)]; break;
#define ODD(n) case n: sum = __sinf(sum) * n + data[n * steps]; data[n + 3] = sum; break;

extern "C" __global__ void __launch_bounds__(1024) remarks(float* data, int way, int steps) {
    float kept[96], sum = data[0];
#pragma unroll
    for (int i = 0; i < 96; ++i) kept[i] = data[i * steps];
    switch (way) {
        EVEN(0) ODD(1) EVEN(2) ODD(3) EVEN(4) ODD(5) EVEN(6) ODD(7) EVEN(8) ODD(9) EVEN(10) ODD(11)
    }
#pragma unroll
    for (int i = 0; i < 96; ++i) sum = sum * kept[i] + kept[95 - i];
    data[1] = sum;
}
