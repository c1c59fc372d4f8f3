/* The simulation of plan/pipes.py once more, for fitting: the same events in the same order, some hundred times faster.
   prediction.py holds the two against each other before it fits. */
#include <math.h>
#include <string.h>

enum { ISSUE, FMA, HALF, MULTIPLY, ALU, SPECIAL, UNIFORM, MATRIX, SHARED, GLOBAL, ASYNC };
enum { QUARTERS = 4, MOST_WARPS = 64, MOST_GROUPS = 64, MOST_TRIPS = 32, SCOREBOARDS = 6 };

typedef struct {
    double macs, wavefronts, lines, sectors, words;
    int pipe, stall, waits, write, read, clash, joins, commits, leaves, bulk_bytes, phase, bulk_rows, own;
} Slot;

typedef struct {
    double global_latency, async_latency, bulk_latency, cache_latency, shared_latency, store_latency, matrix_latency;
    double line_cycles, pass_cycles, strictness, return_cycles, async_cycles, async_pass_cycles, async_sector_cycles;
    double barrier_cycles, matrix_macs_per_cycle, l2_bytes_per_cycle, bulk_cycles, row_cycles;
    double fma_cycles, half_cycles, multiply_cycles, alu_cycles, special_cycles, uniform_cycles;
    double clash_cycles, backlog_cycles;
} Rates;

typedef struct {
    int block, at, trip, slots, copies, asleep, queued, first_group, last_group;
    const Slot* code;
    double ready, since, boards[SCOREBOARDS], groups[MOST_GROUPS], open_group;
} Warp;

typedef struct {
    double store_free, l2_free, bulk_free, share, own_share, free[MATRIX + 1], busy[MATRIX + 1];
    double landed[MOST_WARPS][MOST_TRIPS];
    int ahead;
} Quarter;

static double most(double a, double b) { return a > b ? a : b; }

/* When the slot may issue; negative where a bulk copy that it waits for has not been issued yet. */
static double earliest(Quarter* q, Warp* w, const Slot* s, double time, double in_flight, const Rates* r) {
    for (int k = 0; k < SCOREBOARDS; k++)
        if (s->waits >> k & 1) time = most(time, w->boards[k]);
    if (s->pipe >= SHARED) return most(time, q->store_free - r->backlog_cycles);
    if (s->pipe != ISSUE) return most(time, q->free[s->pipe] - 1);
    if (s->leaves >= 0) {
        while (w->last_group - w->first_group > s->leaves) time = most(time, w->groups[w->first_group++ % MOST_GROUPS]);
    } else if (s->phase && in_flight > 0 && w->trip >= q->ahead) {
        double landed = q->landed[w->block][(w->trip - q->ahead) % MOST_TRIPS];
        if (landed < 0) return w->copies ? time : -1;
        return most(time, landed);
    }
    return time;
}

static void issue(Quarter* q, Warp* w, const Slot* s, double t, const Rates* r) {
    double done = t + 24, read = t + 24;
    if (s->pipe == ISSUE) {
        read = t + 10;
        if (s->commits) {
            w->groups[w->last_group++ % MOST_GROUPS] = w->open_group;
            w->open_group = 0;
        }
        if (s->bulk_bytes) {
            double* landed = q->landed[w->block];
            q->bulk_free = most(q->bulk_free, t) + r->bulk_cycles + s->bulk_rows * r->row_cycles;
            q->l2_free = most(q->l2_free, q->bulk_free) + s->bulk_bytes / r->l2_bytes_per_cycle;
            landed[w->trip % MOST_TRIPS] = most(landed[w->trip % MOST_TRIPS], q->l2_free + r->bulk_latency);
            landed[(w->trip + MOST_TRIPS / 2) % MOST_TRIPS] = -1;
        }
    } else if (s->pipe == SHARED) {
        double work = r->strictness * most(1, s->wavefronts) + (1 - r->strictness) * most(1, s->words);
        work *= s->own ? q->own_share : 1;
        q->store_free = most(q->store_free, t) + q->share * work * r->pass_cycles;
        done = q->store_free + r->shared_latency;
        read = q->store_free + r->store_latency;
    } else if (s->pipe > SHARED) {
        double weight = s->own ? q->own_share : 1;
        double moved = s->sectors * 32 * weight, work = s->lines * r->line_cycles * weight;
        if (s->pipe == ASYNC)
            work += weight * (r->async_cycles + s->wavefronts * r->async_pass_cycles) +
                    weight * s->sectors * r->async_sector_cycles;
        else
            work += moved / 128 * r->return_cycles;
        q->store_free = most(q->store_free, t) + q->share * most(1, work);
        if (moved > 0) q->l2_free = most(q->l2_free, q->store_free) + q->share * moved / r->l2_bytes_per_cycle;
        read = done = q->store_free + 10;
        if (s->pipe == ASYNC)
            w->open_group = most(w->open_group, q->l2_free + r->async_latency);
        else
            done = moved > 0 ? q->l2_free + r->global_latency : q->store_free + r->cache_latency;
    } else if (s->pipe == MATRIX) {
        q->free[MATRIX] = most(q->free[MATRIX], t) + s->macs / r->matrix_macs_per_cycle;
        done = read = q->free[MATRIX] + r->matrix_latency;
    } else {
        q->free[s->pipe] = most(q->free[s->pipe], t) + q->busy[s->pipe] + (s->clash ? r->clash_cycles : 0);
    }
    if (s->write >= 0) w->boards[s->write] = most(w->boards[s->write], done);
    if (s->read >= 0) w->boards[s->read] = most(w->boards[s->read], read);
}

static void wake(Warp* w, double time) {
    w->queued = 1;
    w->ready = w->since = time;
}

double cycles_per_trip(const Slot* trip, int length, const Slot* others, int other_length, int warps_per_block,
                       int resident, double in_flight, double share_leading, const Rates* r, int warm, int measured,
                       int most_issues) {
    static Warp warps[MOST_WARPS];
    static Quarter quarter;
    static int size[MOST_WARPS], arrived[MOST_WARPS];
    int per_block = (warps_per_block + QUARTERS - 1) / QUARTERS;
    int count = per_block * resident;
    if (per_block < 1) per_block = 1;
    if (warps_per_block < QUARTERS) count = (warps_per_block * resident + QUARTERS - 1) / QUARTERS;
    if (count > MOST_WARPS) return NAN;
    int blocks = (count - 1) / per_block + 1;
    Quarter* q = &quarter;
    memset(q, 0, sizeof *q);
    memset(warps, 0, sizeof warps);
    memset(size, 0, sizeof size);
    memset(arrived, 0, sizeof arrived);
    q->share = warps_per_block * resident < QUARTERS ? warps_per_block * resident : QUARTERS;
    int leading = other_length ? (int)rint(share_leading * per_block) : per_block;
    if (leading < 1) leading = 1;
    q->own_share = share_leading * per_block / leading;
    if (share_leading >= 1 && other_length) leading = 1;
    q->ahead = in_flight < 1 ? 1 : (int)rint(in_flight);
    double busy[] = {
        0, r->fma_cycles, r->half_cycles, r->multiply_cycles, r->alu_cycles, r->special_cycles, r->uniform_cycles, 0};
    memcpy(q->busy, busy, sizeof busy);
    for (int i = 0; i < MOST_WARPS; i++)
        for (int j = 0; j < MOST_TRIPS; j++) q->landed[i][j] = -1;
    for (int i = 0; i < count; i++) {
        Warp* w = warps + i;
        w->block = i / per_block;
        w->copies = i % per_block == 0;
        int leads = i % per_block < leading || !other_length;
        w->code = leads ? trip : others;
        w->slots = leads ? length : other_length;
        size[w->block]++;
        wake(w, w->block * ((double)length / blocks));
    }
    long trips = most_issues / ((long)length * count);
    if (trips > warm + measured) trips = warm + measured;
    if (trips < 2) trips = 2;
    long first = (warm < trips / 2 ? warm : trips / 2) * count, last = trips * count, over = 0;
    double began = 0, port = 0;
    for (;;) {
        int b = -1;
        for (int i = 0; i < count; i++) {
            if (!warps[i].queued) continue;
            if (b < 0 || warps[i].ready < warps[b].ready ||
                (warps[i].ready == warps[b].ready && warps[i].since < warps[b].since))
                b = i;
        }
        if (b < 0) return INFINITY;
        Warp* w = warps + b;
        const Slot* s = w->code + w->at;
        w->queued = 0;
        double time = earliest(q, w, s, most(w->ready, port), in_flight, r), next = INFINITY;
        if (time < 0) {
            w->asleep = 1;
            continue;
        }
        for (int i = 0; i < count; i++)
            if (warps[i].queued && warps[i].ready < next) next = warps[i].ready;
        if (time > next && time > w->ready) {
            w->queued = 1;
            w->ready = time;
            continue;
        }
        port = time + 1;
        issue(q, w, s, time, r);
        double ready = time + s->stall;
        if (++w->at == w->slots) {
            w->at = 0;
            w->trip++;
            if (++over == first) began = ready;
            if (over == last) return (ready - began) / (last - first) * count;
        }
        if (!s->joins) {
            wake(w, ready);
        } else {
            w->since = ready;
            w->asleep = 2;
            if (++arrived[w->block] == size[w->block]) {
                arrived[w->block] = 0;
                for (int i = 0; i < count; i++) {
                    if (warps[i].block != w->block || warps[i].asleep != 2) continue;
                    warps[i].asleep = 0;
                    wake(warps + i, most(warps[i].since, time + r->barrier_cycles));
                }
            }
        }
        for (int i = 0; s->bulk_bytes && i < count; i++) {
            if (warps[i].block != w->block || warps[i].asleep != 1) continue;
            warps[i].asleep = 0;
            wake(warps + i, time + 1);
        }
    }
}
