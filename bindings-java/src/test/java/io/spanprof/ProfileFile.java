package io.spanprof;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;

/** Reads pprof files: a reader for tests, independent of the code under test. */
public final class ProfileFile {
    /** A frame; {@code line} is 0 when unknown. */
    public record Frame(String function, String file, long line) {}

    /** An aggregated sample; frames leaf first; its values in the order of the file's types. */
    public record Sample(List<Frame> frames, List<Long> values, Map<String, String> labels) {
        /** Number of CPU samples. */
        public long count() {
            return values.get(0);
        }

        /** Nanoseconds of CPU or wall time: wall samples have one value, CPU samples have a count before it. */
        public long nanoseconds() {
            return values.get(values.size() - 1);
        }

        /** Bytes of allocations. */
        public long bytes() {
            return values.get(0);
        }

        /** Objects of allocations. */
        public long objects() {
            return values.get(1);
        }

        public boolean has(String function) {
            return frames.stream().anyMatch(frame -> frame.function.equals(function));
        }

        public String leaf() {
            return frames.isEmpty() ? "" : frames.get(0).function;
        }
    }

    private record Field(int number, long value, byte[] bytes) {}

    private ProfileFile() {}

    /** The CPU samples of every file in a directory. */
    public static List<Sample> readAll(Path directory) throws IOException {
        return readAll(directory, "cpu");
    }

    /** The samples of one type in every file of a directory. */
    public static List<Sample> readAll(Path directory, String type) throws IOException {
        List<Sample> samples = new ArrayList<>();
        try (Stream<Path> files = Files.list(directory)) {
            for (Path file : files.filter(path -> isProfile(path.getFileName().toString(), type)).toList()) {
                samples.addAll(read(file));
            }
        }
        return samples;
    }

    /** Whether a file is a profile of a type; its side-car is not. */
    private static boolean isProfile(String name, String type) {
        return name.startsWith(type) && name.endsWith(".pb.gz");
    }

    /** Total nanoseconds of the samples that satisfy a condition. */
    public static long sum(List<Sample> samples, Predicate<Sample> condition) {
        return samples.stream().filter(condition).mapToLong(Sample::nanoseconds).sum();
    }

    /** The samples of one file. */
    static List<Sample> read(Path file) throws IOException {
        try (InputStream in = new GZIPInputStream(Files.newInputStream(file))) {
            return parse(in.readAllBytes());
        }
    }

    /** The samples of a profile without compression. */
    static List<Sample> parse(byte[] bytes) {
        List<byte[]> samples = new ArrayList<>();
        List<String> texts = new ArrayList<>();
        Map<Long, List<long[]>> locations = new HashMap<>();
        Map<Long, long[]> functions = new HashMap<>();
        for (Field field : fields(bytes)) {
            switch (field.number) {
                case 2 -> samples.add(field.bytes);
                case 4 -> location(field.bytes, locations);
                case 5 -> function(field.bytes, functions);
                case 6 -> texts.add(new String(field.bytes, StandardCharsets.UTF_8));
                default -> { }
            }
        }
        return samples.stream().map(sample -> sample(sample, texts, locations, functions)).toList();
    }

    private static Sample sample(
            byte[] bytes, List<String> texts, Map<Long, List<long[]>> locations, Map<Long, long[]> functions) {
        List<Frame> frames = new ArrayList<>();
        List<Long> values = new ArrayList<>();
        Map<String, String> labels = new HashMap<>();
        for (Field field : fields(bytes)) {
            switch (field.number) {
                case 1 -> numbers(field).forEach(location -> locations.get(location).forEach(line -> {
                    long[] function = functions.get(line[0]);
                    frames.add(new Frame(texts.get((int) function[0]), texts.get((int) function[1]), line[1]));
                }));
                case 2 -> values.addAll(numbers(field));
                case 3 -> {
                    long[] label = new long[5];
                    fields(field.bytes).forEach(part -> label[part.number] = part.value);
                    String value = label[2] == 0 ? Long.toString(label[3]) : texts.get((int) label[2]);
                    labels.put(texts.get((int) label[1]), value);
                }
                default -> { }
            }
        }
        return new Sample(frames, values, labels);
    }

    private static void location(byte[] bytes, Map<Long, List<long[]>> locations) {
        long id = 0;
        List<long[]> lines = new ArrayList<>();
        for (Field field : fields(bytes)) {
            if (field.number == 1) {
                id = field.value;
            } else if (field.number == 4) {
                long[] line = new long[2];
                fields(field.bytes).forEach(part -> {
                    if (part.number <= 2) {
                        line[part.number - 1] = part.value;
                    }
                });
                lines.add(line);
            }
        }
        locations.put(id, lines);
    }

    private static void function(byte[] bytes, Map<Long, long[]> functions) {
        long id = 0;
        long[] function = new long[2];
        for (Field field : fields(bytes)) {
            switch (field.number) {
                case 1 -> id = field.value;
                case 2 -> function[0] = field.value;
                case 4 -> function[1] = field.value;
                default -> { }
            }
        }
        functions.put(id, function);
    }

    /** A repeated number, packed or not. */
    private static List<Long> numbers(Field field) {
        if (field.bytes == null) {
            return List.of(field.value);
        }
        List<Long> numbers = new ArrayList<>();
        int[] at = {0};
        while (at[0] < field.bytes.length) {
            numbers.add(number(field.bytes, at));
        }
        return numbers;
    }

    private static List<Field> fields(byte[] bytes) {
        List<Field> fields = new ArrayList<>();
        int[] at = {0};
        while (at[0] < bytes.length) {
            long key = number(bytes, at);
            int number = (int) (key >> 3);
            if ((key & 7) == 2) {
                int length = (int) number(bytes, at);
                byte[] part = new byte[length];
                System.arraycopy(bytes, at[0], part, 0, length);
                at[0] += length;
                fields.add(new Field(number, 0, part));
            } else {
                fields.add(new Field(number, number(bytes, at), null));
            }
        }
        return fields;
    }

    private static long number(byte[] bytes, int[] at) {
        long number = 0;
        for (int shift = 0; ; shift += 7) {
            byte part = bytes[at[0]++];
            number |= (long) (part & 0x7f) << shift;
            if (part >= 0) {
                return number;
            }
        }
    }
}
