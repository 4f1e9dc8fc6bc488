"""The text of `NAME.h` and `NAME.c` of a policy, with places for what differs."""

HEADER = """\
#ifndef {NAME}_H
#define {NAME}_H

/* Policy {title}: from an observation to an action.
 *
 * Compile without -ffast-math and, for processors with fused multiply-add, with -ffp-contract=off:
 * actions are then those of the policy in Python, bit for bit.
 */
#include "{net}.h"

#ifdef __cplusplus
extern "C" {{
#endif

#define {NAME}_OBSERVATION_SIZE {observation} /* shape: {shape} */
#define {NAME}_ACTION_SIZE {action}
{choices}{mask_size}#define {NAME}_MEMORY_BYTES {memory}
#define {NAME}_CONSTANT_BYTES {constants} /* weights and tables, without code */

typedef {observed} {name}_observation;
typedef {acted} {name}_action;

enum {{
    {NAME}_OK = 0,{no_action}
    {NAME}_NOT_FINITE = 1 /* the observation has NaN or infinity; the action is unchanged */
}};

typedef struct {{
{members}
}} {name}_memory;

{reset}/* Computes the action for one observation{rows}, in memory of the caller. {begin}
 * Returns {NAME}_OK or {NAME}_NOT_FINITE{or_no_action}.{mask_text} */
int {name}_act_in({name}_memory *memory, const {name}_observation *observation,
                 {mask_parameter} {name}_action *action);

/* The same in static memory, so it is not reentrant. {NAME}_NO_STATIC_MEMORY omits it. */
int {name}_act(const {name}_observation *observation,{mask_parameter} {name}_action *action);

#ifdef __cplusplus
}}
#endif

#endif
"""
SOURCE = """\
/* Policy {title}: observations become codes, `{net}.c` computes with integers, and
 * codes become the action. */
#include "{name}.h"

#include <float.h>

#ifdef __FAST_MATH__
#error "compile without -ffast-math: it changes results"
#endif
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "float must be computed as float; on x86 use -msse2 -mfpmath=sse"
#endif
/* a * b + c must be rounded twice. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

{helpers}
{arrays}
{stages}
int {name}_act_in({name}_memory *memory, const {name}_observation *observation,
                 {mask_parameter} {name}_action *action)
{{
{finite}{mask_checked}{calls}
    return {NAME}_OK;
}}

{reset}
#ifndef {NAME}_NO_STATIC_MEMORY
static {name}_memory static_memory;

int {name}_act(const {name}_observation *observation,{mask_parameter} {name}_action *action)
{{
    return {name}_act_in(&static_memory, observation,{mask_argument} action);
}}
{static_reset}#endif
"""
FINITE = """\
    for (int32_t i = 0; i < {NAME}_OBSERVATION_SIZE; ++i)
        if (!(observation[i] >= -FLT_MAX && observation[i] <= FLT_MAX))
            return {NAME}_NOT_FINITE;
"""
LARGER = """\
/* NaN, if one of them is. */
static float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}
"""
SMALLER = """\
/* NaN, if one of them is. */
static float smaller(float a, float b)
{
    return a < b || a != a ? a : b;
}
"""
CODE_OF = """\
/* The code of x, which is not NaN: rounded to the nearest, half to even, in low..high. */
static int32_t code_of(float x, float steps, int32_t low, int32_t high)
{
    const float v = x * steps;
    int32_t code;
    float rest;

    if (v <= (float)low)
        return low;
    if (v >= (float)high)
        return high;
    code = (int32_t)v;
    rest = v - (float)code;
    if (rest > 0.5f || (rest == 0.5f && code & 1))
        code += 1;
    if (rest < -0.5f || (rest == -0.5f && code & 1))
        code -= 1;
    return code;
}
"""
ENTER = """\
static int {function}(const {name}_observation *observation, {kind}_t *codes)
{{
    for (int32_t i = 0; i < {count}; ++i) {{
{lines}
        if (value != value)
            return {NAME}_NOT_FINITE;
        codes[i] = ({kind}_t)code_of(value, {steps}, {low}, {high});
    }}
    return {NAME}_OK;
}}
"""
LEAVE = """\
static void {name}_outputs({parameters}, float *outputs)
{{
    for (int32_t i = 0; i < {count}; ++i) {{
{lines}
    }}
}}
"""
HEAD = """\
static void {name}_head(const float *outputs,{mask_parameter} {name}_action *action)
{{
{body}
}}
"""
