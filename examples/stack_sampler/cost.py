"""Walks a deep stack again and again, each time with new frames: see `compare` in sampler.rs."""

import sys


def walk_by_f_back():
    frame = sys._getframe()
    while frame is not None:
        frame.f_code
        frame = frame.f_back


def deep(depth):
    if depth == 0:
        walk_by_f_back()
    else:
        deep(depth - 1)


for _ in range(500):
    deep(100)
