// Loads a library with all of its symbols bound, and finds functions in it.
//   load_library LIBRARY FUNCTION…
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : 0;
  if (!library) {
    fprintf(stderr, "load_library: %s\n", count > 1 ? dlerror() : "usage: load_library LIBRARY FUNCTION...");
    return 1;
  }
  for (int each = 2; each < count; each++) {
    if (!dlsym(library, arguments[each])) {
      fprintf(stderr, "load_library: no function %s: %s\n", arguments[each], dlerror());
      return 1;
    }
  }
  printf("%s: loaded, %d functions found\n", arguments[1], count - 2);
  return 0;
}
