/*
 * When the daemon tunes by itself. Apart from tuner.h, for the settings.
 */
#pragma once

enum tuner_mode {
    TUNER_OFF,  /* only what is asked for */
    TUNER_IDLE, /* the shapes that come most often, when nothing else is asked for */
};
