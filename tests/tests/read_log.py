"""Prints what PyPI's hdrhistogram reads in an HdrHistogram log: tag to numbers, as JSON.

Its own percentiles round the place to the nearest; podlapse's take the next, ceil(quantile * count), and so does this.
"""

import json
import math
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader


def at(histogram, quantile):
    place = max(math.ceil(quantile * histogram.get_total_count()), 1)
    for step in histogram.get_recorded_iterator():
        if step.total_count_to_this_value >= place:
            return step.value_iterated_to


reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 3_600_000_000_000, 3))
read = {}
while histogram := reader.get_next_interval_histogram():
    numbers = {"count": histogram.get_total_count()}
    numbers |= {"min_ns": histogram.get_min_value(), "max_ns": histogram.get_max_value()}
    for name, quantile in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999)):
        numbers[name] = at(histogram, quantile)
    read[histogram.get_tag()] = numbers
json.dump(read, sys.stdout)
