"""Reads a pprof file with the standard library only: samples as (values, labels, function names leaf first)."""

import gzip


def fields(data):
    """(field number, value) of one protobuf message; length-delimited values are bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        else:
            value, at = data[at : at + 4], at + 4
        yield key >> 3, value


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def numbers(value):
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    out, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        out.append(number)
    return out


def read(path):
    """(sample type names, samples) of a file."""
    with gzip.open(path) as file:
        profile = list(fields(file.read()))
    texts = [value.decode() for number, value in profile if number == 6]
    functions = {}
    for number, value in profile:
        if number == 5:
            function = dict(fields(value))
            functions[function.get(1, 0)] = texts[function.get(2, 0)]
    locations = {}
    for number, value in profile:
        if number == 4:
            location = list(fields(value))
            lines = [dict(fields(line)) for field, line in location if field == 4]
            locations[dict(location).get(1, 0)] = [functions[line.get(1, 0)] for line in lines if line.get(1, 0)]
    types = [texts[dict(fields(value)).get(1, 0)] for number, value in profile if number == 1]
    samples = [sample(value, texts, locations) for number, value in profile if number == 2]
    return types, samples


def sample(message, texts, locations):
    stack, values, labels = [], [], {}
    for number, value in fields(message):
        if number == 1:
            stack += [name for location in numbers(value) for name in locations[location]]
        elif number == 2:
            values += numbers(value)
        elif number == 3:
            label = dict(fields(value))
            text = texts[label[2]] if label.get(2) else label.get(3, 0)
            labels[texts[label.get(1, 0)]] = text
    return values, labels, stack
