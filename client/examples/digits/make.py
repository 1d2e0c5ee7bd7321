#!/usr/bin/env python3
"""Makes images.npy, labels.npy and weights.npy from digits.csv.gz (README.md says where from).

    make.py digits.csv.gz [DIRECTORY]

Needs numpy. The classifier is multinomial logistic regression, trained on the first half of the
images by full gradient descent: no random numbers, so a second run gives the same files.
"""
import gzip
import pathlib
import sys

import numpy as np

STEPS = 3000
RATE = 0.5
MOMENTUM = 0.9
DECAY = 1e-3  # of the weights, not of the bias


def load(path):
    """Pixels 0..16 become multiples of 1/16, exact in fp16; the 65th column of ones is the bias."""
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    pixels = table[:, :64] / 16
    return np.hstack([pixels, np.ones((len(pixels), 1))]), table[:, 64].astype(np.int8)


def probabilities(scores):
    power = np.exp(scores - scores.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def train(images, labels):
    wanted = np.eye(10)[labels]
    decay = np.full((images.shape[1], 1), DECAY)
    decay[-1] = 0
    weights = np.zeros((images.shape[1], 10))
    velocity = np.zeros_like(weights)
    for _ in range(STEPS):
        slope = images.T @ (probabilities(images @ weights) - wanted) / len(images)
        velocity = MOMENTUM * velocity - RATE * (slope + decay * weights)
        weights += velocity
    return weights.astype("<f2")


def accuracy(images, labels, weights):
    return np.mean((images @ weights.astype(float)).argmax(axis=1) == labels)


def main():
    images, labels = load(sys.argv[1])
    directory = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    half = len(images) // 2
    weights = train(images[:half], labels[:half])
    np.save(directory / "images.npy", images.astype("<f2"))
    np.save(directory / "labels.npy", labels)
    np.save(directory / "weights.npy", weights)
    print(f"first half (trained on) {accuracy(images[:half], labels[:half], weights):.4f}")
    print(f"second half             {accuracy(images[half:], labels[half:], weights):.4f}")


main()
