/* The first training images of Fashion-MNIST. The build writes them by images.py. */
#ifndef FEDGE_TESTS_MCU_IMAGES_H
#define FEDGE_TESTS_MCU_IMAGES_H

#include <stdint.h>

#define NUM_IMAGES 64
#define IMAGE_PIXELS 784

extern const uint8_t images[NUM_IMAGES][IMAGE_PIXELS];
extern const uint8_t image_labels[NUM_IMAGES];

#endif
