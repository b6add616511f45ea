"""Strings of every internal representation are read from memory unchanged."""

import random
import unittest

from native_testing import runtime


class Strings(unittest.TestCase):
    def assert_read(self, string, expected=None):
        self.assertEqual(runtime.text(string), string if expected is None else expected)

    def test_each_kind(self):
        for string in ["", "a", "plain", "größe", "é", "名前", "mixed é 名", "𝔘", "a𝔘é名", "\x00inside", "\u2028"]:
            self.assert_read(string)

    def test_random_strings_of_each_width(self):
        rng = random.Random(7)
        for top in (0x7F, 0xFF, 0xD7FF, 0x10FFFF):
            for _ in range(200):
                points = (rng.randrange(1, top) for _ in range(rng.randrange(60)))
                self.assert_read("".join(chr(point) for point in points if not 0xD800 <= point <= 0xDFFF))

    def test_lone_surrogates_become_replacement_characters(self):
        self.assert_read("file-\udcff.py", "file-\ufffd.py")

    def test_very_long_strings_are_cut(self):
        for letter in "aé名𝔘":
            self.assert_read(letter * 2048)
            self.assert_read(letter * 2049, letter * 2048 + "…")

    def test_subclasses_of_str_keep_their_characters_elsewhere(self):
        class Name(str):
            pass

        for string in ["plain", "é", "名前", "𝔘"]:
            self.assert_read(Name(string), string)


if __name__ == "__main__":
    unittest.main()
