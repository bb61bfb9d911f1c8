"""Writes the first images of Fashion-MNIST as C: images.py FOLDER OUTPUT

FOLDER: /usr/share/datasets/fashion-mnist, of Debian's package dataset-fashion-mnist.
"""

import gzip
import sys

IMAGES = 64
PIXELS = 28 * 28


def rows(values):
    return ",\n".join("    " + ", ".join(map(str, values[i : i + 28])) for i in range(0, len(values), 28))


def read(path, header, size):
    with gzip.open(path) as file:
        data = file.read(header + size)
    if len(data) != header + size:
        sys.exit(f"{path} is too short")
    return data[header:]


def main(folder, output):
    pixels = read(f"{folder}/train-images-idx3-ubyte.gz", 16, IMAGES * PIXELS)
    labels = read(f"{folder}/train-labels-idx1-ubyte.gz", 8, IMAGES)
    with open(output, "w", encoding="ascii") as file:
        file.write('#include "tests/mcu/images.h"\n\nconst uint8_t images[NUM_IMAGES][IMAGE_PIXELS] = {\n')
        for i in range(IMAGES):
            file.write("{\n" + rows(pixels[i * PIXELS : (i + 1) * PIXELS]) + "},\n")
        file.write("};\n\nconst uint8_t image_labels[NUM_IMAGES] = {\n" + rows(labels) + "};\n")


main(*sys.argv[1:])
