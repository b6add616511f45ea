package io.spanprof;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.function.UnaryOperator;

/**
 * Changes to a class file (JVM specification, chapter 4) that need no knowledge of the code in it: constants are replaced or appended,
 * and a method is renamed and called by a new one with its name. Code, its offsets and its stack maps stay. Used while a class is
 * loaded, since a loaded one cannot have more methods.
 */
final class ClassPatch {
    private static final String HOOKS = "io/spanprof/ProgramHooks";
    private static final String OBJECT = "Ljava/lang/Object;";
    private static final String END = "(Ljava/lang/Object;Ljava/lang/Throwable;)V";
    private static final int UTF_8 = 1;
    private static final int CLASS = 7;
    private static final int STRING = 8;
    private static final int METHOD = 10;
    private static final int INTERFACE_METHOD = 11;
    private static final int NAME_AND_TYPE = 12;
    private static final int STATIC = 8;
    private static final int ACONST_NULL = 0x01;
    private static final int ICONST_0 = 0x03;
    private static final int LDC_W = 0x13;
    private static final int ALOAD = 0x19;
    private static final int ASTORE = 0x3a;
    private static final int ARETURN = 0xb0;
    private static final int RETURN = 0xb1;
    private static final int INVOKE_VIRTUAL = 0xb6;
    private static final int INVOKE_STATIC = 0xb8;
    private static final int INVOKE_INTERFACE = 0xb9;
    private static final int ANEWARRAY = 0xbd;
    private static final int ATHROW = 0xbf;
    private static final int CHECKCAST = 0xc0;
    private static final int FULL_FRAME = 255;
    /** Modifiers of methods without code: native, abstract. */
    private static final int WITHOUT_CODE = 0x0500;
    private static final int SYNCHRONIZED = 0x20;

    private final byte[] file;
    /** Offsets of the constants; 0 where a number has no constant. */
    private final int[] offsets;
    private final int poolEnd;
    private final ByteArrayOutputStream addedBytes = new ByteArrayOutputStream();
    private final DataOutputStream added = new DataOutputStream(addedBytes);
    private int count;

    ClassPatch(byte[] original) {
        file = original.clone();
        count = u2(8);
        offsets = new int[count];
        int at = 10;
        for (int i = 1; i < count; i++) {
            offsets[i] = at;
            int tag = file[at];
            if (tag == UTF_8) {
                at += 3 + u2(at + 1);
            } else if (tag == 5 || tag == 6) {
                at += 9;
                i++;
            } else {
                at += tag == 15 ? 4 : tag == CLASS || tag == STRING || tag == 16 || tag == 19 || tag == 20 ? 3 : 5;
            }
        }
        poolEnd = at;
    }

    private int u2(int at) {
        return (file[at] & 0xff) << 8 | file[at + 1] & 0xff;
    }

    private void putU2(int at, int value) {
        file[at] = (byte) (value >> 8);
        file[at + 1] = (byte) value;
    }

    private String text(int constant) {
        int at = offsets[constant];
        try {
            int length = 2 + u2(at + 1);
            return new DataInputStream(new ByteArrayInputStream(file, at + 1, length)).readUTF();
        } catch (IOException malformed) {
            throw new IllegalArgumentException(malformed);
        }
    }

    private int constant(int tag, int first, int second) throws IOException {
        added.writeByte(tag);
        added.writeShort(first);
        if (second >= 0) {
            added.writeShort(second);
        }
        return count++;
    }

    private int utf8(String text) throws IOException {
        added.writeByte(UTF_8);
        added.writeUTF(text);
        return count++;
    }

    private int type(String name) throws IOException {
        return constant(CLASS, utf8(name), -1);
    }

    private int method(int tag, int owner, String name, String descriptor) throws IOException {
        return constant(tag, owner, constant(NAME_AND_TYPE, utf8(name), utf8(descriptor)));
    }

    /** The file with names replaced in all constants. */
    byte[] renamed(UnaryOperator<String> rename) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.write(file, 0, 10);
        for (int i = 1; i < count; i++) {
            int at = offsets[i];
            // The number after a constant of eight bytes has none.
            int following = i + 1 < count && offsets[i + 1] == 0 ? i + 2 : i + 1;
            int next = following < count ? offsets[following] : poolEnd;
            if (at != 0 && file[at] == UTF_8) {
                out.writeByte(UTF_8);
                out.writeUTF(rename.apply(text(i)));
            } else if (at != 0) {
                out.write(file, at, next - at);
            }
        }
        out.write(file, poolEnd, file.length - poolEnd);
        return bytes.toByteArray();
    }

    /** The file with calls of the static method replaced by those of a method of {@link ProgramHooks}; null if it has no such call. */
    byte[] redirected(String owner, String name) throws IOException {
        int hooks = 0;
        for (int i = 1; i < offsets.length; i++) {
            int at = offsets[i];
            if (at != 0 && file[at] == METHOD && text(u2(offsets[u2(at + 1)] + 1)).equals(owner)
                    && text(u2(offsets[u2(at + 3)] + 1)).equals(name)) {
                hooks = hooks == 0 ? type(HOOKS) : hooks;
                putU2(at + 1, hooks);
            }
        }
        return hooks == 0 ? null : file(poolEnd, new byte[0], poolEnd);
    }

    /**
     * The file whose method without parameters calls {@link ProgramHooks#accept} first, with the object, or with the class of a static
     * method. Any loader may have the class: the call names classes of the JDK only. Null if there is no such method.
     */
    byte[] announced(String name, String result) throws IOException {
        String descriptor = "()L" + result + ";";
        int at = find(name, descriptor);
        if (at == 0) {
            return null;
        }
        boolean isStatic = (u2(at) & STATIC) != 0;
        Code code = new Code();
        code.call(INVOKE_STATIC, "java/lang/ClassLoader", "getSystemClassLoader", "()Ljava/lang/ClassLoader;");
        code.constant(constant(STRING, utf8(HOOKS.replace('/', '.')), -1));
        code.call(INVOKE_VIRTUAL, "java/lang/ClassLoader", "loadClass", "(Ljava/lang/String;)Ljava/lang/Class;");
        code.emptyArray("java/lang/Class");
        code.call(INVOKE_VIRTUAL, "java/lang/Class", "getConstructor", "([Ljava/lang/Class;)Ljava/lang/reflect/Constructor;");
        code.emptyArray("java/lang/Object");
        code.call(INVOKE_VIRTUAL, "java/lang/reflect/Constructor", "newInstance", "([" + OBJECT + ")" + OBJECT);
        int consumer = type("java/util/function/Consumer");
        code.out.writeByte(CHECKCAST);
        code.out.writeShort(consumer);
        if (isStatic) {
            code.constant(u2(poolEnd + 2));
        } else {
            code.local(ALOAD, 0);
        }
        code.out.writeByte(INVOKE_INTERFACE);
        code.out.writeShort(method(INTERFACE_METHOD, consumer, "accept", "(" + OBJECT + ")V"));
        code.out.writeShort(2 << 8);
        code.original(isStatic, name, descriptor, 0);
        code.out.writeByte(ARETURN);
        return wrapped(at, name, code, new byte[2], new byte[2]);
    }

    /**
     * The file whose void method calls {@link ProgramHooks#begin} before its work, with its two arguments, and {@link ProgramHooks#end}
     * after it. The class must see those of the package. Null if there is no such method.
     */
    byte[] enclosed(String name, String first, String second) throws IOException {
        String descriptor = "(L" + first + ";L" + second + ";)V";
        int at = find(name, descriptor);
        if (at == 0 || (u2(at) & STATIC) != 0) {
            return null;
        }
        int scope = 3;
        Code code = new Code();
        code.local(ALOAD, 1);
        code.local(ALOAD, 2);
        code.call(INVOKE_STATIC, HOOKS, "begin", "(" + OBJECT + OBJECT + ")" + OBJECT);
        code.local(ASTORE, scope);
        int start = code.out.size();
        code.original(false, name, descriptor, 2);
        int end = code.out.size();
        code.local(ALOAD, scope);
        code.out.writeByte(ACONST_NULL);
        code.call(INVOKE_STATIC, HOOKS, "end", END);
        code.out.writeByte(RETURN);
        int handler = code.out.size();
        code.local(ASTORE, scope + 1);
        code.local(ALOAD, scope);
        code.local(ALOAD, scope + 1);
        code.call(INVOKE_STATIC, HOOKS, "end", END);
        code.local(ALOAD, scope + 1);
        code.out.writeByte(ATHROW);

        ByteArrayOutputStream table = new ByteArrayOutputStream();
        DataOutputStream exceptions = new DataOutputStream(table);
        for (int value : new int[] {1, start, end, handler, 0}) {
            exceptions.writeShort(value);
        }
        ByteArrayOutputStream map = new ByteArrayOutputStream();
        DataOutputStream frames = new DataOutputStream(map);
        frames.writeShort(1);
        frames.writeShort(utf8("StackMapTable"));
        frames.writeInt(2 + 5 + 3 * (scope + 1) + 2 + 3);
        frames.writeShort(1);
        frames.writeByte(FULL_FRAME);
        frames.writeShort(handler);
        frames.writeShort(scope + 1);
        frames.writeByte(CLASS);
        frames.writeShort(u2(poolEnd + 2));
        for (String local : new String[] {first, second, "java/lang/Object"}) {
            frames.writeByte(CLASS);
            frames.writeShort(type(local));
        }
        frames.writeShort(1);
        frames.writeByte(CLASS);
        frames.writeShort(type("java/lang/Throwable"));
        return wrapped(at, name, code, table.toByteArray(), map.toByteArray());
    }

    /** Offset of the number of methods, which the methods follow. */
    private int methods() {
        return membersEnd(poolEnd + 8 + 2 * u2(poolEnd + 6));
    }

    private int membersEnd(int start) {
        int at = start + 2;
        for (int left = u2(start); left > 0; left--) {
            at = memberEnd(at);
        }
        return at;
    }

    private int memberEnd(int start) {
        int at = start + 8;
        for (int left = u2(start + 6); left > 0; left--) {
            at += 6 + (u2(at + 2) << 16 | u2(at + 4));
        }
        return at;
    }

    /** Offset of a method with code; 0 if there is none. */
    private int find(String name, String descriptor) {
        int methods = methods();
        int at = methods + 2;
        for (int left = u2(methods); left > 0; left--) {
            boolean hasCode = (u2(at) & WITHOUT_CODE) == 0;
            if (hasCode && text(u2(at + 2)).equals(name) && text(u2(at + 4)).equals(descriptor)) {
                return at;
            }
            at = memberEnd(at);
        }
        return 0;
    }

    private static String inner(String name) {
        return name + "$spanprof";
    }

    /** Renames the method at an offset, and adds one with its former name and the code. */
    private byte[] wrapped(int at, String name, Code code, byte[] exceptions, byte[] attributes) throws IOException {
        int methods = methods();
        int end = membersEnd(methods);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeShort(u2(at) & ~SYNCHRONIZED);
        out.writeShort(u2(at + 2));
        out.writeShort(u2(at + 4));
        out.writeShort(1);
        out.writeShort(utf8("Code"));
        byte[] instructions = code.bytes.toByteArray();
        out.writeInt(8 + instructions.length + exceptions.length + attributes.length);
        out.writeShort(8);
        out.writeShort(8);
        out.writeInt(instructions.length);
        out.write(instructions);
        out.write(exceptions);
        out.write(attributes);
        putU2(at + 2, utf8(inner(name)));
        putU2(methods, u2(methods) + 1);
        return file(end, bytes.toByteArray(), end);
    }

    /** The file with the added constants, and bytes inserted at an offset. */
    private byte[] file(int until, byte[] inserted, int from) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        putU2(8, count);
        out.write(file, 0, poolEnd);
        out.write(addedBytes.toByteArray(), 0, addedBytes.size());
        out.write(file, poolEnd, until - poolEnd);
        out.write(inserted, 0, inserted.length);
        out.write(file, from, file.length - from);
        return out.toByteArray();
    }

    /** Instructions of a new method. */
    private final class Code {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final DataOutputStream out = new DataOutputStream(bytes);

        void local(int instruction, int local) throws IOException {
            out.writeByte(instruction);
            out.writeByte(local);
        }

        void constant(int constant) throws IOException {
            out.writeByte(LDC_W);
            out.writeShort(constant);
        }

        void emptyArray(String element) throws IOException {
            out.writeByte(ICONST_0);
            out.writeByte(ANEWARRAY);
            out.writeShort(type(element));
        }

        void call(int instruction, String owner, String name, String descriptor) throws IOException {
            out.writeByte(instruction);
            out.writeShort(method(METHOD, type(owner), name, descriptor));
        }

        /** Calls the renamed method with the arguments of the new one. */
        void original(boolean isStatic, String name, String descriptor, int parameters) throws IOException {
            for (int i = 0; i < parameters + (isStatic ? 0 : 1); i++) {
                local(ALOAD, i);
            }
            out.writeByte(isStatic ? INVOKE_STATIC : INVOKE_VIRTUAL);
            out.writeShort(method(METHOD, u2(poolEnd + 2), inner(name), descriptor));
        }
    }
}
