// An addon whose functions have no frame pointers and use that register for other values: known chains from JavaScript and back.
// Node-API has a stable binary interface, so that its few functions are declared here and no headers are needed.

#include <stddef.h>
#include <stdint.h>

typedef void *Value;
typedef Value (*Callback)(void *env, void *info);
extern int napi_get_cb_info(void *env, void *info, size_t *count, Value *arguments, Value *self, void **data);
extern int napi_get_value_uint32(void *env, Value value, uint32_t *number);
extern int napi_get_undefined(void *env, Value *value);
extern int napi_call_function(void *env, Value self, Value function, size_t count, const Value *arguments, Value *result);
extern int napi_create_function(void *env, const char *name, size_t length, Callback callback, void *data, Value *function);
extern int napi_set_named_property(void *env, Value object, const char *name, Value value);

volatile uint64_t spun;

#define NOT_INLINED __attribute__((noinline, noclone))
// The frame pointer holds another value, and nothing is a tail call.
#define USE_FRAME_POINTER(register_value) __asm__ volatile("movq %0, %%rbp" ::"r"((uint64_t)(register_value)) : "rbp", "memory")

#define SPINNER(name, addend)                                                        \
  NOT_INLINED void name(uint64_t turns) {                                            \
    uint64_t x = addend;                                                             \
    while (turns-- > 0) __asm__ volatile("imulq $1103, %0; addq %1, %0" : "+r"(x) : "i"(addend)); \
    spun = x;                                                                        \
  }
SPINNER(chain_half, 1)
SPINNER(chain_third, 2)
SPINNER(chain_fifth, 3)

NOT_INLINED void chain_burn_inner(uint64_t turns) {
  USE_FRAME_POINTER(turns);
  chain_half(5 * turns);
  chain_third(3 * turns);
  chain_fifth(2 * turns);
  spun++;
}

NOT_INLINED void chain_burn_outer(uint64_t turns) {
  USE_FRAME_POINTER(7);
  chain_burn_inner(turns);
  spun++;
}

NOT_INLINED void chain_call_inner(void *env, Value function) {
  USE_FRAME_POINTER(env);
  Value undefined, result;
  napi_get_undefined(env, &undefined);
  napi_call_function(env, undefined, function, 0, NULL, &result);
  spun++;
}

NOT_INLINED void chain_call_outer(void *env, Value function) {
  USE_FRAME_POINTER(1);
  chain_call_inner(env, function);
  spun++;
}

static Value argument(void *env, void *info) {
  Value value = NULL;
  size_t count = 1;
  napi_get_cb_info(env, info, &count, &value, NULL, NULL);
  return value;
}

// burn(turns)
static Value burn(void *env, void *info) {
  uint32_t turns = 0;
  napi_get_value_uint32(env, argument(env, info), &turns);
  chain_burn_outer(turns);
  return NULL;
}

// call(function)
static Value call(void *env, void *info) {
  chain_call_outer(env, argument(env, info));
  return NULL;
}

Value napi_register_module_v1(void *env, Value exports) {
  Value function;
  napi_create_function(env, "burn", SIZE_MAX, burn, NULL, &function);
  napi_set_named_property(env, exports, "burn", function);
  napi_create_function(env, "call", SIZE_MAX, call, NULL, &function);
  napi_set_named_property(env, exports, "call", function);
  return exports;
}
