/* pace.c - see pace.h */
#include "scheduler/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Within one size of step, which spans a factor of two in rows and in context, times differ by two or three; on busy
 * machines by more, but not for long. */
static const double SLOW = 8, WELL = 4;        /* times the usual seconds: slow from SLOW on, well below WELL */
static const double NOTICED = 0.025;           /* seconds of a step; shorter ones are never slow: nobody notices */
static const double STRETCH = 0.5;             /* seconds of steps that end a stretch, */
enum { FEWEST_STEPS = 2, STRETCH_STEPS = 16 }; /* if it has FEWEST_STEPS; STRETCH_STEPS end it, too */
enum { SLOW_STRETCHES = 2, WELL_STRETCHES = 4 };
static const double SILENCE = 2; /* seconds of silence that are never too long */
static const double TIMELY = 1;  /* seconds between two looks, below which silence counts */
static const double STALE = 5;   /* seconds without a step, after which earlier steps are forgotten */

enum { ROW_SIZES = 20, CONTEXT_SIZES = 32 }; /* by powers of two */

/* Devices of one name. */
typedef struct {
    char *name;
    float usual[ROW_SIZES][CONTEXT_SIZES]; /* seconds of a step, in the fastest stretch this large; 0: none yet */
    double longest;                        /* seconds of a step, on devices that were well; 0: none yet */
} device_kind;

typedef struct {
    int n_steps, rows, context;
    double seconds, usual, longest;
} stretch; /* rows, context: sizes of the smallest step; seconds, usual: sums */

typedef struct {
    device_kind *kind; /* borrowed; NULL: there is no such GPU */
    bool slow;
    int n_slow, n_well; /* stretches in a row */
    stretch now;
    bool in_step;                  /* its last report says that it has more to do */
    bool overdue;                  /* silent for too long at the last look */
    double heard, looked, stepped; /* when: last report, last look, end of the last step */
    pace_times last;
} member;

struct pace {
    device_kind **kinds; /* [n_kinds] owned */
    member *members;     /* [n_members] by number */
    size_t n_kinds, kinds_cap, n_members, members_cap;
};

pace *pace_new(void)
{
    return XNEW(pace);
}

void pace_free(pace *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_kinds; i++) {
        free(p->kinds[i]->name);
        free(p->kinds[i]);
    }
    free(p->kinds);
    free(p->members);
    free(p);
}

static device_kind *find_kind(pace *p, const char *name)
{
    for (size_t i = 0; i < p->n_kinds; i++)
        if (strcmp(p->kinds[i]->name, name) == 0)
            return p->kinds[i];
    device_kind *k = XNEW(device_kind);
    k->name = xstrdup(name);
    p->kinds = xgrow(p->kinds, &p->kinds_cap, p->n_kinds + 1, sizeof *p->kinds);
    return p->kinds[p->n_kinds++] = k;
}

static member *find_member(const pace *p, int gpu)
{
    return gpu >= 0 && (size_t)gpu < p->n_members && p->members[gpu].kind ? &p->members[gpu] : NULL;
}

void pace_gpu_up(pace *p, double now, int gpu, const char *kind, bool on_probation)
{
    CHECK(gpu >= 0);
    p->members = xgrow(p->members, &p->members_cap, (size_t)gpu + 1, sizeof *p->members);
    while (p->n_members <= (size_t)gpu)
        p->members[p->n_members++] = (member){0};
    p->members[gpu] = (member){.kind = find_kind(p, kind),
                               .heard = now,
                               .looked = now,
                               .stepped = now,
                               .slow = on_probation,
                               .n_well = on_probation ? WELL_STRETCHES - 1 : 0};
}

void pace_gpu_gone(pace *p, int gpu)
{
    member *m = find_member(p, gpu);
    if (m)
        m->kind = NULL;
}

/* Returns the exponent of the largest power of two that is not above n, at most sizes - 1. */
static int size_of(int64_t n, int sizes)
{
    int size = n > 0 ? 63 - __builtin_clzll((uint64_t)n) : 0;
    return size < sizes ? size : sizes - 1;
}

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

static void add_step(stretch *t, const device_kind *k, int rows, int context, double seconds)
{
    t->rows = t->n_steps ? lesser(t->rows, rows) : rows;
    t->context = t->n_steps ? lesser(t->context, context) : context;
    t->n_steps++;
    t->seconds += seconds;
    t->usual += k->usual[rows][context] > 0 ? k->usual[rows][context] : seconds;
    t->longest = fmax(t->longest, seconds);
}

/* Notes a stretch's mean: it is possible for steps of its size, and so for smaller ones. */
static void learn(device_kind *k, const stretch *t)
{
    float mean = (float)(t->seconds / t->n_steps);
    for (int r = 0; r <= t->rows; r++)
        for (int c = t->context; c >= 0 && (k->usual[r][c] == 0 || k->usual[r][c] > mean); c--)
            k->usual[r][c] = mean;
}

static pace_news set_slow(member *m, bool slow)
{
    if (m->slow == slow)
        return PACE_SAME;
    m->slow = slow;
    m->n_slow = m->n_well = 0;
    m->now = (stretch){0};
    return slow ? PACE_SLOW : PACE_WELL;
}

/* Judges a stretch that is over, and begins the next. */
static pace_news judge(member *m)
{
    stretch t = m->now;
    m->now = (stretch){0};
    m->last = (pace_times){t.seconds / t.n_steps, t.usual / t.n_steps};
    bool slow = m->last.took >= NOTICED && t.seconds >= SLOW * t.usual;
    bool well = m->last.took < NOTICED || t.seconds < WELL * t.usual;
    m->n_slow = slow ? m->n_slow + 1 : 0;
    m->n_well = well ? m->n_well + 1 : 0;
    if (!slow) {
        learn(m->kind, &t);
        if (!m->slow)
            m->kind->longest = fmax(m->kind->longest, t.longest);
    }
    if (m->n_slow >= SLOW_STRETCHES)
        return set_slow(m, true);
    return m->n_well >= WELL_STRETCHES ? set_slow(m, false) : PACE_SAME;
}

/* Forgets earlier steps of a GPU that had nothing to do for long: it may have recovered since. */
static void forget_stale(member *m, double began)
{
    if (began - m->stepped < STALE)
        return;
    m->now = (stretch){0};
    m->n_slow = 0;
}

pace_news pace_step(pace *p, double now, int gpu, int64_t rows, int64_t context, double seconds, bool goes_on)
{
    member *m = find_member(p, gpu);
    if (!m)
        return PACE_SAME;
    m->heard = now;
    m->overdue = false;
    m->in_step = goes_on && rows > 0;
    if (rows <= 0 || !(seconds >= 0 && seconds < 1e6))
        return PACE_SAME;
    forget_stale(m, now - seconds);
    m->stepped = now;
    add_step(&m->now, m->kind, size_of(rows, ROW_SIZES), size_of(context, CONTEXT_SIZES), seconds);
    bool is_over = m->now.n_steps >= FEWEST_STEPS && (m->now.seconds >= STRETCH || m->now.n_steps >= STRETCH_STEPS);
    return is_over ? judge(m) : PACE_SAME;
}

pace_news pace_look(pace *p, double now, int gpu)
{
    member *m = find_member(p, gpu);
    if (!m)
        return PACE_SAME;
    bool timely = now - m->looked < TIMELY;
    m->looked = now;
    double silent = now - m->heard, longest = m->kind->longest;
    bool was_overdue = m->overdue;
    m->overdue = timely && m->in_step && longest > 0 && silent > fmax(SILENCE, SLOW * longest);
    if (!m->overdue || !was_overdue)
        return PACE_SAME;
    m->last = (pace_times){silent, longest};
    return set_slow(m, true);
}

bool pace_is_slow(const pace *p, int gpu)
{
    const member *m = find_member(p, gpu);
    return m && m->slow;
}

pace_times pace_last(const pace *p, int gpu)
{
    const member *m = find_member(p, gpu);
    return m ? m->last : (pace_times){0};
}
