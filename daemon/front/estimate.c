#include "estimate.h"

#define LEARNING 0.125 /* of the newest: eight jobs until a change of load shows */
#define RATIO    64    /* a prediction is off by at most this; more is a stall, not a habit */

double estimate_correct(const struct estimates *estimates, uint64_t class, double predicted)
{
    size_t i = class % ESTIMATE_CLASSES;

    if (estimates->classes[i].class != class || !(estimates->classes[i].predicted > 0))
        return predicted;
    return predicted * estimates->classes[i].measured / estimates->classes[i].predicted;
}

void estimate_learn(struct estimates *estimates, uint64_t class, double predicted, double measured)
{
    size_t i = class % ESTIMATE_CLASSES;
    double bounded = MIN(MAX(measured, predicted / RATIO), predicted * RATIO);

    if (!(predicted > 0))
        return;
    if (estimates->classes[i].class != class) {
        estimates->classes[i].class = class;
        estimates->classes[i].predicted = predicted;
        estimates->classes[i].measured = bounded;
        return;
    }
    estimates->classes[i].predicted += LEARNING * (predicted - estimates->classes[i].predicted);
    estimates->classes[i].measured += LEARNING * (bounded - estimates->classes[i].measured);
}
