#include "estimate.h"

#define MEMORY_SECONDS 10e-3 /* of work in the averages */
#define MEMORY_LEAST   8     /* jobs in them, however long those are */
#define MEMORY_MOST    4096  /* and however short */
#define RATIO          64    /* a prediction is off by at most this; more is a stall, not a habit */

double estimate_correct(const struct estimates *estimates, uint64_t class, double predicted)
{
    size_t i = class % ESTIMATE_CLASSES;

    if (estimates->classes[i].class != class || !(estimates->classes[i].predicted > 0))
        return predicted;
    return predicted * estimates->classes[i].measured / estimates->classes[i].predicted;
}

static double jobs_in_memory(double predicted)
{
    return MIN(MAX(MEMORY_SECONDS / predicted, MEMORY_LEAST), MEMORY_MOST);
}

void estimate_learn(struct estimates *estimates, uint64_t class, double predicted, double measured)
{
    size_t i = class % ESTIMATE_CLASSES;
    double bounded = MIN(MAX(measured, predicted / RATIO), predicted * RATIO), newest;

    if (!(predicted > 0))
        return;
    if (estimates->classes[i].class != class) {
        estimates->classes[i].class = class;
        estimates->classes[i].predicted = estimates->classes[i].measured = 0;
        estimates->classes[i].count = 0;
        return;
    }
    /* A plain mean until there are enough. */
    estimates->classes[i].count = MIN(estimates->classes[i].count + 1, MEMORY_MOST);
    newest = 1 / MIN((double)estimates->classes[i].count, jobs_in_memory(predicted));
    estimates->classes[i].predicted += newest * (predicted - estimates->classes[i].predicted);
    estimates->classes[i].measured += newest * (bounded - estimates->classes[i].measured);
}
