// Computes the vectors in this directory again, in 64-bit two's complement, and compares them.
//
//     iverilog -g2012 -o bench bench.sv && vvp bench
//
// The last line is PASS or FAIL, with the number of codes that differ.

package numbers;
    // The number that `width` bits represent.
    function automatic longint value(input logic [63:0] bits, input int width, input bit is_signed);
        if (is_signed && bits[width - 1])
            return bits - (64'd1 << width);
        return bits;
    endfunction

    // v / 2^shift, rounded: 0 half to even, 1 half up, 2 half away from zero, 3 down,
    // 4 half up by one bit, then half away from zero by the others.
    function automatic longint shifted(input longint v, input int shift, input int rounding);
        longint whole, rest, half;
        if (shift <= 0)
            return v <<< -shift;
        whole = v >>> shift;
        rest = v - (whole <<< shift);
        half = 64'sd1 <<< (shift - 1);
        if (rounding == 4)
            rest = rest + (rest & 1);
        if (rounding == 3 || rest < half)
            return whole;
        if (rest > half)
            return whole + 1;
        case (rounding)
            0: return whole + (whole & 1);
            1: return whole + 1;
            default: return v >= 0 ? whole + 1 : whole;
        endcase
    endfunction
endpackage

// Compares one code, and counts differences.
module judge #(parameter NAME = "");
    int wrong = 0, seen = 0;

    task automatic compare(input logic [63:0] found, input logic [63:0] wanted, input int index);
        seen = seen + 1;
        if (found !== wanted) begin
            if (wrong == 0)
                $display("differs: %0s[%0d] is %0h, computed is %0h", NAME, index, wanted, found);
            wrong = wrong + 1;
        end
    endtask
endmodule

// Sums of products: each row of X has TAPS x INPUTS codes, W is [TAPS][INPUTS / GROUPS][OUTPUTS].
module sums_check #(
    parameter NAME = "", X = "", W = "", Y = "",
    parameter int ROWS = 1, FILE_ROWS = 1, TAPS = 1, INPUTS = 1, OUTPUTS = 1, GROUPS = 1,
    parameter int X_BITS = 8, X_SIGNED = 0, W_BITS = 8, W_SIGNED = 1, Y_BITS = 32, Y_SIGNED = 1
);
    import numbers::*;
    localparam int EACH = INPUTS / GROUPS;
    logic [X_BITS-1:0] x [0:FILE_ROWS*TAPS*INPUTS-1];
    logic [W_BITS-1:0] w [0:TAPS*EACH*OUTPUTS-1];
    logic [Y_BITS-1:0] y [0:FILE_ROWS*OUTPUTS-1];
    judge #(NAME) result();

    task automatic check;
        longint sum;
        int first;
        $readmemh(X, x);
        $readmemh(W, w);
        $readmemh(Y, y);
        for (int n = 0; n < ROWS; n = n + 1)
            for (int o = 0; o < OUTPUTS; o = o + 1) begin
                sum = 0;
                first = o / (OUTPUTS / GROUPS) * EACH;
                for (int t = 0; t < TAPS; t = t + 1)
                    for (int k = 0; k < EACH; k = k + 1)
                        sum = sum + value(x[(n * TAPS + t) * INPUTS + first + k], X_BITS, X_SIGNED)
                                  * value(w[(t * EACH + k) * OUTPUTS + o], W_BITS, W_SIGNED);
                result.compare(sum, value(y[n * OUTPUTS + o], Y_BITS, Y_SIGNED), n * OUTPUTS + o);
            end
    endtask
endmodule

// A requantization, or a clip: one with shift 0. The CHANNELS shifts are repeated.
module requantize_check #(
    parameter NAME = "", X = "", Y = "", SHIFTS = "",
    parameter int COUNT = 1, CHANNELS = 1, SHIFT = 0, ROUNDING = 0, WRAP = 0,
    parameter logic signed [63:0] LOW = 0, HIGH = 0,
    parameter int X_BITS = 32, X_SIGNED = 1, Y_BITS = 8, Y_SIGNED = 1
);
    import numbers::*;
    logic [X_BITS-1:0] x [0:COUNT-1];
    logic [Y_BITS-1:0] y [0:COUNT-1];
    logic [7:0] shifts [0:CHANNELS-1];
    judge #(NAME) result();

    task automatic check;
        longint v;
        int shift;
        $readmemh(X, x);
        $readmemh(Y, y);
        if (SHIFTS != "")
            $readmemh(SHIFTS, shifts);
        for (int i = 0; i < COUNT; i = i + 1) begin
            shift = SHIFT;
            if (SHIFTS != "")
                shift = value(shifts[i % CHANNELS], 8, 1);
            v = shifted(value(x[i], X_BITS, X_SIGNED), shift, ROUNDING);
            if (WRAP)
                v = ((v - LOW) & (HIGH - LOW)) + LOW;
            else if (v < LOW)
                v = LOW;
            else if (v > HIGH)
                v = HIGH;
            result.compare(v, value(y[i], Y_BITS, Y_SIGNED), i);
        end
    endtask
endmodule

// OP of one or two codes. The CHANNELS codes of B are repeated.
module pair_check #(
    parameter NAME = "", A = "", B = "", Y = "",
    parameter int COUNT = 1, CHANNELS = 1, OP = 0,
    parameter int A_BITS = 16, A_SIGNED = 1, B_BITS = 16, B_SIGNED = 1, Y_BITS = 17, Y_SIGNED = 1
);
    import numbers::*;
    logic [A_BITS-1:0] a [0:COUNT-1];
    logic [B_BITS-1:0] b [0:CHANNELS-1];
    logic [Y_BITS-1:0] y [0:COUNT-1];
    judge #(NAME) result();

    task automatic check;
        longint p, q, v;
        $readmemh(A, a);
        $readmemh(B, b);
        $readmemh(Y, y);
        for (int i = 0; i < COUNT; i = i + 1) begin
            p = value(a[i], A_BITS, A_SIGNED);
            q = value(b[i % CHANNELS], B_BITS, B_SIGNED);
            case (OP)
                // bench.py writes the cases.
            endcase
            result.compare(v, value(y[i], Y_BITS, Y_SIGNED), i);
        end
    endtask
endmodule

// A table; entry 0 is for the code OFFSET.
module lookup_check #(
    parameter NAME = "", X = "", TABLE = "", Y = "",
    parameter int COUNT = 1, ENTRIES = 1, OFFSET = 0,
    parameter int X_BITS = 8, X_SIGNED = 1, TABLE_BITS = 8, TABLE_SIGNED = 1,
    parameter int Y_BITS = 8, Y_SIGNED = 1
);
    import numbers::*;
    logic [X_BITS-1:0] x [0:COUNT-1];
    logic [TABLE_BITS-1:0] entries [0:ENTRIES-1];
    logic [Y_BITS-1:0] y [0:COUNT-1];
    judge #(NAME) result();

    task automatic check;
        $readmemh(X, x);
        $readmemh(TABLE, entries);
        $readmemh(Y, y);
        for (int i = 0; i < COUNT; i = i + 1)
            result.compare(
                value(entries[value(x[i], X_BITS, X_SIGNED) - OFFSET], TABLE_BITS, TABLE_SIGNED),
                value(y[i], Y_BITS, Y_SIGNED), i);
    endtask
endmodule

module bench;
    int wrong = 0, seen = 0;
